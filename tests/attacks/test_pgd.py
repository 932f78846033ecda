"""PGD: closed forms, the golden description step by step, losses, restarts, what it asks of the oracle."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from robustdeq.attacks import PGD, Direct
from robustdeq.attacks.task import keys_of, random_starts
from robustdeq.threat import L2, Linf, confident, cross_entropy, dlr, kl, margin

from .oracles import Recorded
from .victims import Linear, RowByRow, images, predictions


def two_classes(seed=0):
    """A linear model whose margin has one constant gradient, w, and images far from the pixel bounds."""
    model = Linear(classes=2, seed=seed)
    x = 0.3 + 0.4 * images(8, shape=(1, 3, 3), seed=seed)
    return model, x, predictions(model, x)


@pytest.mark.parametrize("loss", ["ce", "margin"])
def test_the_exact_attack_on_a_linear_model_is_recovered_in_linf(loss):
    model, x, y = two_classes()
    w = (model.weight[1 - y] - model.weight[y]).reshape(x.shape).detach()
    result = PGD(Linf(0.1), steps=20, step_size=0.02, loss=loss)(Direct(model), x, y)
    assert_close(result.images, x + 0.1 * w.sign(), rtol=0, atol=1e-12)
    gained = margin(result.logits, y) - margin(model(x), y)
    assert_close(gained, 0.1 * w.abs().flatten(1).sum(1))  # eps times the dual norm


@pytest.mark.parametrize("loss", ["ce", "margin"])
def test_the_exact_attack_on_a_linear_model_is_recovered_in_l2(loss):
    model, x, y = two_classes()
    w = (model.weight[1 - y] - model.weight[y]).reshape(x.shape).detach()
    norm = w.flatten(1).norm(dim=1)
    result = PGD(L2(0.2), steps=200, step_size=0.1, loss=loss)(Direct(model), x, y)
    assert_close(result.images, x + 0.2 * w / norm[:, None, None, None], rtol=0, atol=1e-9)
    assert_close(margin(result.logits, y) - margin(model(x), y), 0.2 * norm)


def test_steps_are_those_of_the_golden_description_bitwise():
    """x' + step * sign of each image's own gradient, clip to [x - eps, x + eps], then to [0, 1]."""
    model, x = RowByRow().eval(), images(5)
    x[0, 0, 0] = 1.0
    x[1, 0, 0] = 0.0
    y, eps, size = predictions(model, x), 8 / 255, 2 / 255
    start = Linf(eps).random_start(x, torch.Generator().manual_seed(0))
    expected = start
    for _ in range(10):
        point = expected.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(point), y, reduction="sum"), point)
        clipped = torch.clamp(expected + size * gradient.sign(), min=x - eps, max=x + eps)
        expected = clipped.clamp(0.0, 1.0)
    attack = PGD(Linf(eps))
    assert (attack.steps, attack.step_size, attack.name) == (10, size, "PGD-10")
    assert torch.equal(attack(Direct(model), x, y, start=start).images, expected)


@pytest.mark.parametrize("loss", ["ce", "margin", "dlr", "kl", "confident"])
def test_each_loss_follows_its_own_gradient(loss):
    model, x = RowByRow().eval(), images(16)
    y = predictions(model, x)
    clean = model(x).detach()
    formula = {
        "ce": lambda z: cross_entropy(z, y),
        "margin": lambda z: margin(z, y),
        "dlr": lambda z: dlr(z, y),
        "confident": lambda z: confident(z, y),
        "kl": lambda z: kl(z, clean),
    }
    start = Linf(0.02).random_start(x, torch.Generator().manual_seed(0))
    point = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(formula[loss](model(point)).sum(), point)
    expected = Linf(0.02).project(start + 0.005 * gradient.sign(), x)
    result = PGD(Linf(0.02), steps=1, step_size=0.005, loss=loss)(Direct(model), x, y, start=start)
    assert torch.equal(result.images, expected)
    assert (formula[loss](result.logits) > formula[loss](model(start))).all()


def test_without_a_random_start_the_search_begins_at_the_clean_image():
    oracle = Recorded(RowByRow().eval())
    PGD(Linf(0.1), steps=1, random_start=False)(oracle, x := images(2), torch.zeros(2, dtype=torch.int64))
    assert torch.equal(oracle.shown[0], x)


def test_a_random_start_fills_the_ball():
    oracle = Recorded(RowByRow().eval())
    x = torch.full((50, 1, 6, 6), 0.5, dtype=torch.float64)
    PGD(Linf(0.1), steps=1)(oracle, x, torch.zeros(50, dtype=torch.int64), index=range(50))
    offsets = (oracle.shown[0] - x).flatten()
    assert_close(offsets.std().item(), 0.1 / 3**0.5, rtol=0.05, atol=0)
    assert (oracle.shown[0][0] != oracle.shown[0][1]).all()


def test_an_image_keeps_its_first_successful_restart_else_the_one_of_highest_loss():
    model, x = RowByRow().eval(), images(40)
    y = predictions(model, x)
    attack = PGD(Linf(0.045), steps=3, step_size=0.01, restarts=4)
    kept = attack(Direct(model), x, y)
    singles = []
    for run in range(4):  # each run alone, from its own start
        start = torch.cat([_start(attack, x[i : i + 1], run) for i in range(40)])
        singles.append(PGD(Linf(0.045), steps=3, step_size=0.01)(Direct(model), x, y, start=start))
    success = torch.stack([single.success for single in singles])
    loss = torch.stack([cross_entropy(single.logits, y) for single in singles])
    choice = torch.where(success.any(0), success.int().argmax(0), loss.argmax(0))
    assert len(choice.unique()) == 4
    assert torch.equal(kept.images, torch.stack([single.images for single in singles])[choice, torch.arange(40)])
    assert torch.equal(kept.success, success.any(0))


def _start(attack, x, run):
    return random_starts(attack.threat, x, attack.seed, "PGD", run, keys_of(x, None))


def test_without_every_image_each_image_stops_at_its_first_deployed_success():
    model, x = RowByRow().eval(), images(20)
    y = predictions(model, x)
    oracle = Recorded(model)
    attack = PGD(Linf(0.1), steps=12, step_size=0.01)
    result = attack(oracle, x, y, every_image=False)
    fully = attack(Direct(model), x, y)
    assert torch.equal(result.success, fully.success)
    assert 3 < result.success.sum() < 20 or result.success.all()
    assert sum(map(len, oracle.shown)) == result.queries.sum()
    early = result.success & (result.queries < 14)
    assert early.sum() > 3
    for row in early.nonzero().flatten():
        steps = int(result.queries[row]) - 3  # one clean pass, the pass that found out, and the judge's
        start = torch.cat([_start(attack, x[row : row + 1], 0)])
        if steps == 0:
            assert torch.equal(result.images[row], start[0])
            continue
        before = PGD(Linf(0.1), steps=steps, step_size=0.01)(Direct(model), x[row : row + 1], y[row : row + 1])
        assert torch.equal(before.images[0], result.images[row])
        if steps > 1:
            shorter = PGD(Linf(0.1), steps=steps - 1, step_size=0.01)(Direct(model), x[row : row + 1], y[row : row + 1])
            assert not shorter.success


def test_with_one_run_on_every_image_the_deployed_predictor_is_asked_once():
    oracle = Recorded(RowByRow().eval())
    result = PGD(Linf(0.1), steps=7)(oracle, images(3), torch.zeros(3, dtype=torch.int64))
    assert oracle.asked == ["surrogate"] * 7 + ["deployed"]
    assert result.queries.tolist() == [8, 8, 8]


def test_kl_computes_its_reference_once():
    oracle = Recorded(RowByRow().eval())
    PGD(Linf(0.1), steps=4, loss="kl")(oracle, x := images(3), torch.zeros(3, dtype=torch.int64))
    assert oracle.asked == ["surrogate"] * 5 + ["deployed"]
    assert torch.equal(oracle.shown[0], x)


def test_deployed_values_change_where_the_loss_is_taken_but_not_whose_gradient_it_is():
    """Surrogate: the deployed logits times -1. Straight-through: d loss(deployed) / d logits, times -dz/dx."""
    oracle = Recorded(RowByRow().eval(), factor=-1.0)
    x, y = images(4), torch.zeros(4, dtype=torch.int64)
    attack = PGD(Linf(0.1), steps=1, step_size=0.01, random_start=False, loss="margin")
    deployed = attack(replace(oracle, values="deployed"), x, y)
    point = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(margin(oracle.model(point), y).sum(), point)
    assert torch.equal(deployed.images, Linf(0.1).project(x - 0.01 * gradient.sign(), x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "at least 1"),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"restarts": 2, "random_start": False}, "all the same"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PGD(Linf(0.1), **settings)


def test_a_ball_of_radius_zero_holds_the_clean_image_alone():
    model, x = RowByRow().eval(), images(3)
    y = predictions(model, x)
    assert torch.equal(PGD(Linf(0.0), step_size=0.0)(Direct(model), x, y).images, x)
    with pytest.raises(ValueError, match="step_size must be positive"):
        PGD(Linf(0.1), step_size=0.0)
