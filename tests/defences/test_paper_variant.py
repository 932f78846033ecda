"""The paper's variant is Algorithm 1 as `robustdeq.plain` writes it out."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import cell, images, mdeq, plainly


@pytest.mark.parametrize(
    ("every", "steps", "direction"),
    [(1, 1, "gradient"), (2, 3, "sign"), (3, 2, "gradient"), (4, 2, "sign"), (8, 1, "gradient")],
)
def test_states_inputs_and_entropies_equal_algorithm_1(victim, every, steps, direction):
    model, x = victim
    settings = {
        "every": every,
        "steps": steps,
        "direction": direction,
        "step_size": 0.3 if direction == "gradient" else 2 / 255,
    }
    expected = plainly(model, x, **settings)
    trajectory = rd.EntropyReduction(model, **settings).trajectory(x)
    assert_close(trajectory.states, expected.states, rtol=0, atol=1e-10)
    assert_close(trajectory.residual, expected.residuals, rtol=0, atol=1e-10)
    assert_close(trajectory.inputs, expected.inputs, rtol=0, atol=1e-10)
    assert_close(trajectory.inner_entropy[:, :-1], expected.entropies, rtol=0, atol=1e-10)
    assert (trajectory.inputs - x).abs().amax() > 1e-3


SHAPES = [
    {"channels": (4,), "head_channels": (3,)},
    {"channels": (4, 8, 8), "head_channels": (2, 2, 4), "downsample": 2},
    {"downsample": 3, "in_channels": 1},
    {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.2)},
]


@pytest.mark.parametrize("options", SHAPES, ids=["one scale", "three scales", "small", "normalised"])
def test_every_shape_of_mdeq_is_defended_as_written(options, variant):
    model, x = mdeq(**options), images(1, options.get("in_channels", 3), 16, 16)
    settings = {"every": 4, "steps": 1, "direction": "sign", "variant": variant}
    expected = plainly(model, x, **settings)
    trajectory = rd.EntropyReduction(model, **settings).trajectory(x)
    size = expected.states.abs().max()
    assert_close(trajectory.states / size, expected.states / size, rtol=0, atol=1e-10)
    assert_close(trajectory.inputs, expected.inputs, rtol=0, atol=1e-10)


def test_logits_read_the_lowest_residual_state_with_the_purified_image(victim):
    model, x = victim
    expected = plainly(model, x, every=4, steps=2, step_size=0.3)
    f, _ = model.begin(expected.inputs[-1])
    y = f(expected.value)
    for _ in range(model.gradient.steps):
        y = (y + f(y)) / 2
    logits = rd.EntropyReduction(model, every=4, steps=2, step_size=0.3)(x)
    assert_close(logits, model.head(f.unpack(y)), rtol=0, atol=1e-10)


def test_without_inner_iterations_it_is_the_undefended_solve_bit_by_bit(victim):
    model, x = victim
    defended, undefended = rd.EntropyReduction(model, steps=0), model
    assert torch.equal(defended.trajectory(x).states, undefended.trajectory(x).states)
    assert torch.equal(defended(x), undefended(x))
    assert torch.equal(rd.EarlyState(defended, state=5)(x), rd.EarlyState(undefended, state=5)(x))


def test_with_a_radius_of_zero_only_rounding_is_left_of_the_defence(victim):
    model, x = victim
    trajectory = rd.EntropyReduction(model, every=4, steps=2, radius=0.0).trajectory(x)
    assert torch.equal(trajectory.inputs, x.expand_as(trajectory.inputs))
    assert_close(trajectory.states, model.trajectory(x).states, rtol=0, atol=1e-10)


@pytest.mark.parametrize("model", [mdeq(), cell()], ids=["mdeq", "cell"])
def test_small_steps_lower_the_entropy_of_every_image_at_every_inner_iteration(model):
    x = images(4, *((3, 8, 8) if isinstance(model, rd.MDEQ) else (1, 4, 4))).clamp(0.2, 0.8)
    inner = rd.EntropyReduction(model, every=4, steps=4, step_size=1e-3, radius=1.0).trajectory(x).inner_entropy
    assert inner.shape == (2, 4 + 1, 4)
    assert (inner.diff(dim=1) < 0).all()


def test_the_images_keep_moving_from_one_intervention_to_the_next():
    model, x = mdeq(), images(2, 3, 8, 8)
    inputs = rd.EntropyReduction(model, every=3, steps=2, direction="sign", step_size=2 / 255).trajectory(x).inputs
    moved = (inputs - x).abs().amax((1, 2, 3, 4)) * 255
    assert_close(moved, torch.tensor([4.0, 8.0], dtype=x.dtype), rtol=0, atol=1e-9)
