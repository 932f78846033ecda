"""Outside attack libraries run on an oracle of a DEQ as they are."""

import warnings

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import nn

import robustdeq as rd
from robustdeq.attacks import PGD, Direct
from robustdeq.threat import Linf

from .victims import images, predictions

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports from scipy by an old path
    import foolbox

EPS = 0.1


class AsModule(nn.Module):
    """foolbox accepts modules only."""

    def __init__(self, oracle):
        super().__init__()
        self.oracle = oracle

    def forward(self, x):
        return self.oracle(x)


@pytest.fixture
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", num_classes=10)
    with torch.no_grad():
        for p in model.head.parameters():
            p.mul_(8)  # the initial weights are so small that every image looks alike
    return model.eval()


@pytest.fixture
def x():
    return images(4, shape=(1, 8, 8), dtype=torch.float32)


@pytest.mark.parametrize("values", ["surrogate", "deployed"])
def test_foolbox_s_pgd_runs_on_an_oracle_and_does_what_ours_does(model, x, values):
    oracle, y = Direct(model, values=values), predictions(model, x)
    attack = foolbox.attacks.LinfPGD(abs_stepsize=0.02, steps=5, random_start=False)
    client = foolbox.PyTorchModel(AsModule(oracle).eval(), bounds=(0, 1), device="cpu")
    _, found, _ = attack(client, x, y, epsilons=EPS)
    ours = PGD(Linf(EPS), steps=5, step_size=0.02, random_start=False)(oracle, x, y)
    assert (ours.images != x).any()
    torch.testing.assert_close(found, ours.images, rtol=0, atol=1e-6)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", [APGDAttack, FABAttack_PT, SquareAttack])
def test_pyautoattack_s_attacks_run_on_an_oracle(model, x, kind):
    oracle, y = Direct(model, values="deployed"), predictions(model, x)
    budget = {"n_queries": 10} if kind is SquareAttack else {"n_iter": 3}
    with torch.random.fork_rng():
        found = kind(oracle, norm="Linf", eps=EPS, device="cpu", **budget).perturb(x, y)
    assert found.shape == x.shape
    assert Linf(EPS).contains(found.detach(), x).all()
    assert all(p.grad is None for p in model.parameters())
