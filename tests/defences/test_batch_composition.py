"""Passes are batch-independent, even if other samples of the batch diverge or become non-finite."""

from functools import cache

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import images, mdeq, moody, plainly

HEALTHY, QUICK, WILD, NAN, ALSO_HEALTHY = range(5)


def troubled():
    """A model and five images: healthy, converging at once, diverging, NaN, healthy."""
    model = moody(solver=rd.Broyden(max_steps=8, criterion="absolute", divergence=1.5))
    x = images(5, 1, 4, 4).clamp(0.1, 0.9)
    x[:, 0, 0, 0] = torch.tensor([0.5, 0.0, 0.8, 0.5, 0.45])
    x[NAN, 0, 2, 2] = torch.nan
    return model, x


SETTINGS = {"every": 2, "steps": 3, "step_size": 0.3, "radius": 0.1}


def test_the_images_converge_diverge_and_break_as_intended():
    model, x = troubled()
    kinds = [rd.Status.STEP_LIMIT, rd.Status.CONVERGED, rd.Status.DIVERGED, rd.Status.NON_FINITE]
    undefended = model.trajectory(x)
    assert undefended.status[:4].tolist() == kinds
    assert undefended.steps[QUICK] < 4
    defended = rd.EntropyReduction(model, **SETTINGS).trajectory(x)
    assert defended.steps[QUICK] > undefended.steps[QUICK]  # converged, then woken by a new input
    assert (defended.states[-1, QUICK] - undefended.states[-1, QUICK]).abs().max() > 1e-3
    assert defended.status[NAN] == rd.Status.NON_FINITE


def test_a_troubled_batch_equals_algorithm_1():
    model, x = troubled()
    model.solver = rd.Broyden(max_steps=8)  # the plain one's
    keep = [HEALTHY, QUICK, NAN, ALSO_HEALTHY]
    expected = plainly(model, x[keep], **SETTINGS)
    trajectory = rd.EntropyReduction(model, **SETTINGS).trajectory(x[keep])
    assert_close(trajectory.states, expected.states, rtol=0, atol=1e-10, equal_nan=True)
    finite = [0, 1, 3]
    assert_close(trajectory.inputs[:, finite], expected.inputs[:, finite], rtol=0, atol=1e-10)
    assert_close(trajectory.inputs[-1, 2], x[NAN], rtol=0, atol=0, equal_nan=True)  # left as it was received


@cache
def whole_batch(variant):
    model, x = troubled()
    defended = rd.EntropyReduction(model, variant=variant, **SETTINGS)
    return defended, x, defended.trajectory(x)


@pytest.mark.parametrize("order", [[i] for i in range(5)] + [[4, 2, 1, 0, 3]], ids=str)
def test_results_are_batch_independent(variant, order):
    defended, x, whole = whole_batch(variant)
    part = defended.trajectory(x[order])
    # the diverging sample's states are large: compare in units of each sample's own size
    size = whole.states.nan_to_num().abs().amax((0, 2), keepdim=True).clamp_min(1)
    assert_close(part.states / size[:, order], (whole.states / size)[:, order], rtol=0, atol=1e-10, equal_nan=True)
    assert_close(part.inputs, whole.inputs[:, order], rtol=0, atol=1e-10, equal_nan=True)
    assert part.status.tolist() == whole.status[order].tolist()
    assert part.steps.tolist() == whole.steps[order].tolist()
    assert_close(part.inner_entropy, whole.inner_entropy[:, :, order], rtol=0, atol=1e-10, equal_nan=True)


def test_logits_of_an_mdeq_are_batch_independent(variant):
    model, x = mdeq(), images(3, 3, 8, 8)
    x[1] = torch.nan
    defended = rd.EarlyState(rd.EntropyReduction(model, variant=variant, steps=1), state=8)
    together = defended(x)
    assert together[1].isnan().all()
    assert together[[0, 2]].isfinite().all()
    for i in (0, 2):
        assert_close(defended(x[i : i + 1]), together[i : i + 1], rtol=0, atol=1e-10)


def test_purified_images_stay_in_the_ball_and_in_the_pixels(variant):
    model, x = mdeq(), images(4, 3, 8, 8)
    radius = 5 / 255
    for direction in ("gradient", "sign"):
        settings = {"every": 4, "steps": 2, "step_size": 10.0, "radius": radius}
        defended = rd.EntropyReduction(model, variant=variant, direction=direction, **settings)
        inputs = defended.trajectory(x).inputs
        assert (inputs - x).abs().max() <= radius + 1e-15
        assert (inputs - x).abs().max() > radius - 1e-12
        assert inputs.min() == 0
        assert inputs.max() == 1
