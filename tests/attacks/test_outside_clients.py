"""Outside attack libraries run unmodified on an oracle of a defended DEQ."""

import warnings

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import nn
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.threat import Linf

from .victims import images, predictions

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports from scipy by an old path
    import foolbox

EPS = 0.2


class AsModule(nn.Module):
    """foolbox accepts modules only."""

    def __init__(self, oracle):
        super().__init__()
        self.oracle = oracle

    def forward(self, x):
        return self.oracle(x)


@pytest.fixture(scope="module")
def task():
    """A defended mdeq-nano, four images and their predicted classes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", num_classes=10).eval()
    with torch.no_grad():
        for p in model.head.parameters():
            p.mul_(8)  # the initial weights are so small that every image looks alike
    x = images(4, shape=(1, 8, 8), dtype=torch.float32)
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=2), state=8)
    return predictor, x, predictions(predictor, x)


def predicted(predictor, found, x):
    """The deployed predictor's classes, after checking that the images lie in the ball and no parameter has a .grad."""
    assert found.shape == x.shape
    assert Linf(EPS).contains(found.detach(), x).all()
    assert all(p.grad is None for p in predictor.parameters())
    return predictions(predictor, found.detach())


@pytest.mark.parametrize("values", ["surrogate", "deployed"])
def test_foolbox_s_pgd_runs_on_an_oracle_and_does_what_ours_does(task, values):
    predictor, x, y = task
    oracle = rd.UnrolledState(predictor, state=3, values=values)
    client = foolbox.PyTorchModel(AsModule(oracle).eval(), bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(abs_stepsize=EPS / 4, steps=4, random_start=False)
    _, found, fooled = attack(client, x, y, epsilons=EPS)
    ours = rd.PGD(Linf(EPS), steps=4, random_start=False)(oracle, x, y)
    assert (ours.images != x).any()
    assert_close(found, ours.images, rtol=0, atol=1e-6)
    if values == "deployed":  # it saw the deployed logits
        assert torch.equal(fooled, predicted(predictor, found, x) != y)


@pytest.mark.parametrize("kind", [APGDAttack, FABAttack_PT, SquareAttack])
def test_pyautoattack_s_attacks_run_on_an_oracle(task, kind):
    predictor, x, y = task
    oracle = rd.UnrolledState(predictor, state=3, values="deployed")
    budget = {"n_queries": 10} if kind is SquareAttack else {"n_iter": 3}
    with torch.random.fork_rng():
        found = kind(oracle, norm="Linf", eps=EPS, device="cpu", **budget).perturb(x, y)
    fooled = predicted(predictor, found, x) != y
    # these attacks return the clean image where they see no success, so every changed image must fool
    assert torch.equal((found != x).flatten(1).any(1), fooled)
