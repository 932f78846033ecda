"""The inner attack: where its images lie, and what it leaves behind, which is nothing."""

import pytest
import torch

from robustdeq.threat import L2, Linf
from robustdeq.training import PGDAT, TRADES, Attacked, Carried, Cold, Draws, RandomState

THREATS = [Linf(8 / 255), L2(0.5)]
OBJECTIVES = [
    kind(states=RandomState(), threat=threat, steps=2, step_size=threat.eps / 2, inner=inner)
    for kind in (PGDAT, TRADES)
    for threat in THREATS
    for inner in (Cold(), Carried())
]
every_objective = pytest.mark.parametrize(
    "objective", OBJECTIVES, ids=lambda o: f"{type(o).__name__} {o.threat} {type(o.inner).__name__}"
)


def snapshot(model):
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "modes": {name: m.training for name, m in model.named_modules()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "grad": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
    }


def assert_unchanged(before, model):
    after = snapshot(model)
    assert before["modes"] == after["modes"]
    assert before["requires_grad"] == after["requires_grad"]
    assert all(torch.equal(before["state"][k], after["state"][k]) for k in before["state"])
    for name, gradient in before["grad"].items():
        other = after["grad"][name]
        assert (gradient is None) == (other is None), name
        assert gradient is None or torch.equal(gradient, other), name


@every_objective
def test_adversarial_images_lie_in_the_ball_and_in_the_pixel_range(model, batch, objective):
    x, y = batch
    x = x.round()  # at the borders of the range
    x_adv = objective.search(model, x, y, Draws(0, 0)).images
    assert objective.threat.contains(x_adv, x, tolerance=1e-12).all()
    assert not x_adv.requires_grad
    assert (objective.threat.distance(x_adv, x) > 0.5 * objective.threat.eps).any()


@every_objective
def test_an_attack_leaves_statistics_modes_flags_and_gradients_as_they_were(model, batch, objective):
    x, y = batch
    objective(model, x, y, Draws(0, 0)).total.backward()  # gradients that must survive
    model.head.eval()  # a mixed mode, and a frozen parameter
    frozen = next(model.encoder.parameters()).requires_grad_(False)
    frozen.grad = None
    before = snapshot(model)
    objective.search(model, x, y, Draws(0, 1))
    assert_unchanged(before, model)


@every_objective
def test_dropout_and_batch_statistics_play_no_part_in_an_attack(model, batch, objective):
    """It attacks the model of evaluation: what it finds does not depend on the model's mode."""
    x, y = batch
    assert model.training
    in_training = objective.search(model, x, y, Draws(0, 0)).images
    assert torch.equal(objective.search(model.eval(), x, y, Draws(0, 0)).images, in_training)


def test_a_failing_attack_leaves_the_model_as_it_was(model, batch):
    x, y = batch
    before = snapshot(model)
    with pytest.raises(IndexError):
        PGDAT(steps=1).search(model, x, y + 100, Draws(0, 0))
    assert_unchanged(before, model)


def test_the_attack_runs_in_eval_mode_without_parameter_gradients(model, batch):
    x, y = batch
    seen = []
    model.head.register_forward_hook(
        lambda module, *_: seen.append((module.training, any(p.requires_grad for p in module.parameters())))
    )
    TRADES(steps=2).search(model, x, y, Draws(0, 0))
    assert seen == [(False, False)] * 3


@pytest.mark.parametrize("kind", [PGDAT, TRADES])
def test_an_attack_raises_the_loss_it_climbs(model, batch, kind):
    x, y = batch
    draws = Draws(0, 0)
    objective = kind(steps=5, step_size=4 / 255)
    model.eval()
    with torch.no_grad():
        attacked = objective.losses(model, x, y, objective.search(model, x, y, draws), draws)
        clean = objective.losses(model, x, y, Attacked(x), draws)
    assert attacked.total > clean.total


def test_more_attack_steps_do_not_change_the_first_ones(model, batch):
    """Each inner step has draws of its own, by name, so the number of steps does not shift them."""
    x, y = batch
    paths = []
    for steps in (2, 3):
        images = []
        hook = model.encoder.register_forward_pre_hook(
            lambda _, inputs, images=images: images.append(inputs[0].clone())
        )
        PGDAT(states=RandomState(), steps=steps).search(model, x, y, Draws(0, 0))
        hook.remove()
        paths.append(images)
    assert [len(images) for images in paths] == [2, 3]
    assert all(torch.equal(a, b) for a, b in zip(*paths, strict=False))
