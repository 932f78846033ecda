"""One training step equals the plain implementation's, which takes the same draws."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq.plain import training as plain
from robustdeq.threat import Linf
from robustdeq.training import PGDAT, TRADES, Attacked, Carried, Draws, Final, RandomState

ATTACK = {"threat": Linf(8 / 255), "steps": 2, "step_size": 4 / 255}
PLAIN_ATTACK = {"eps": 8 / 255, "steps": 2, "step_size": 4 / 255}
STATES = {None: Final(), "paper": RandomState("paper"), "released": RandomState("released")}


@pytest.fixture
def models(make_model):
    """Two identical models in train mode, with dropout."""
    return make_model(), make_model()


def update(model, loss):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer.zero_grad()
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    return gradients


def compare(ours, other, our_loss, other_loss):
    assert_close(our_loss.detach(), other_loss.detach(), rtol=0, atol=1e-8)
    for a, b in zip(update(ours, our_loss), update(other, other_loss), strict=True):
        assert_close(a, b, rtol=1e-8, atol=1e-8)
    for (name, a), b in zip(ours.state_dict().items(), other.state_dict().values(), strict=True):
        assert_close(a, b, rtol=1e-8, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("random", STATES)
@pytest.mark.parametrize("jacobian", [None, 2.0])
def test_a_pgd_at_step_equals_plain(models, batch, random, jacobian):
    ours, other = models
    x, y = batch
    draws = Draws(seed=3, step=7)
    objective = PGDAT(states=STATES[random], **ATTACK)
    x_adv = objective.search(ours, x, y, draws).images
    expected = plain.pgd_at_images(other, x, y, draws, random=random, **PLAIN_ATTACK)
    assert_close(x_adv, expected, rtol=0, atol=1e-8)
    loss = objective.losses(ours, x, y, Attacked(x_adv), draws, jacobian or 0.0).total
    compare(ours, other, loss, plain.pgd_at_loss(other, expected, y, draws, random=random, jacobian=jacobian))


@pytest.mark.parametrize(
    ("random", "clean_target", "jacobian"),
    [
        (None, "once", None),
        (None, "once", 0.4),
        ("paper", "once", None),
        ("paper", "redrawn", 0.4),
        ("released", "once", 0.4),
        ("released", "redrawn", None),
    ],
)
def test_a_trades_step_equals_plain(models, batch, random, clean_target, jacobian):
    ours, other = models
    x, y = batch
    draws = Draws(seed=4, step=11)
    objective = TRADES(states=STATES[random], clean_target=clean_target, **ATTACK)
    x_adv = objective.search(ours, x, y, draws).images
    expected = plain.trades_images(other, x, draws, random=random, redrawn=clean_target == "redrawn", **PLAIN_ATTACK)
    assert_close(x_adv, expected, rtol=0, atol=1e-8)
    loss = objective.losses(ours, x, y, Attacked(x_adv), draws, jacobian or 0.0).total
    compare(ours, other, loss, plain.trades_loss(other, x, expected, y, draws, random=random, jacobian=jacobian))


@pytest.mark.parametrize("kind", [PGDAT, TRADES])
def test_a_loss_with_an_unrolling_of_its_own_equals_plain(models, batch, kind):
    ours, other = models
    x, y = batch
    draws, x_adv = Draws(seed=6, step=3), (x + 0.02).clamp(0, 1)
    loss = kind(unroll=2).losses(ours, x, y, Attacked(x_adv), draws).total
    settings = {"random": None, "unrolled": 2}
    expected = (
        plain.pgd_at_loss(other, x_adv, y, draws, **settings)
        if kind is PGDAT
        else plain.trades_loss(other, x, x_adv, y, draws, **settings)
    )
    compare(ours, other, loss, expected)


CARRIED = {"first": 3, "iterations": 2, "damping": 0.6, "extra": 1}


@pytest.mark.parametrize("random", STATES)
@pytest.mark.parametrize("kind", [PGDAT, TRADES])
def test_the_images_of_a_carried_attack_equal_plain(models, batch, kind, random):
    ours, other = models
    x, y = batch
    draws = Draws(seed=5, step=2)
    found = kind(states=STATES[random], inner=Carried(**CARRIED), **ATTACK).search(ours, x, y, draws).images
    options = {"random": random, "carried": plain.CarriedPair(**CARRIED), **PLAIN_ATTACK}
    if kind is PGDAT:
        expected = plain.pgd_at_images(other, x, y, draws, **options)
    else:
        expected = plain.trades_images(other, x, draws, **options)
    assert_close(found, expected, rtol=0, atol=1e-8)


def test_a_plain_carried_attack_encodes_once_a_step_however_many_iterations_it_makes(models, batch):
    """Else the baseline would do work that the formulas do not ask for, and flatter ours."""
    model, (x, y), calls = models[0], batch, []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    plain.pgd_at_images(model, x, y, Draws(0, 0), random=None, carried=plain.CarriedPair(iterations=3), **PLAIN_ATTACK)
    assert len(calls) == PLAIN_ATTACK["steps"]
