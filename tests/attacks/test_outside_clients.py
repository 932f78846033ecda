"""Outside attack libraries run unmodified on an oracle of a defended DEQ."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from pyautoattack.autopgd_base import APGDAttack
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.data import load_digits
from robustdeq.threat import Linf

from .victims import predictions

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports from scipy by an old path
    import foolbox

EPS = 0.2


@pytest.fixture(scope="module")
def task():
    """A defended mdeq-nano trained on digits for a moment, four images and their predicted classes."""
    train, _, test = load_digits()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", num_classes=10)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(25):
            rows = torch.randint(len(train.pixels), (64,))
            loss = F.cross_entropy(model.truncated(train.pixels[rows].float() / 255, layers=3), train.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    optimizer.zero_grad()
    x = test.pixels[:4].float() / 255
    predictor = rd.EarlyState(rd.EntropyReduction(model.eval(), every=4, steps=2), state=8)
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
    client = foolbox.PyTorchModel(oracle.module(), bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(abs_stepsize=EPS / 4, steps=3, random_start=False)
    _, found, fooled = attack(client, x, y, epsilons=EPS)
    ours = rd.PGD(Linf(EPS), steps=3, random_start=False)(oracle, x, y)
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


def modes(module):
    return {name: part.training for name, part in module.named_modules()}


@pytest.mark.parametrize("mode", [True, False])
def test_whoever_restores_the_mode_it_found_leaves_the_model_in_its_own(mode):
    """torchattacks, for one: eval mode during the attack, then `train()` if `training` was set before."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", num_classes=10, dropout=0.5).train(mode)
        x, y = torch.rand(2, 1, 8, 8), torch.tensor([0, 1])
    deployed = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=1), state=8)
    oracle = rd.UnrolledState(deployed)
    expected = modes(model)
    for module in (deployed, oracle.module()):
        found = module.training
        module.eval()
        module(x)
        if found:
            module.train()
        assert modes(model) == expected
    rd.PGD(Linf(EPS), steps=1)(deployed, x, y)
    assert modes(model) == expected
    assert deployed.training == mode
    assert mode or torch.equal(model(x), model(x))


def test_torchattacks_leaves_the_model_in_eval_mode(task):
    torchattacks = pytest.importorskip("torchattacks", reason="pip install --no-deps torchattacks")
    predictor, x, y = task
    for module in (predictor, rd.UnrolledState(predictor).module()):
        torchattacks.PGD(module, eps=EPS, alpha=EPS / 4, steps=1)(x, y)
        assert not any(part.training for part in predictor.modules())
