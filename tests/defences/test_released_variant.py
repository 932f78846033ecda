"""The released variant per sample (its batch-coupled form meets the golden numbers in tests/golden)."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import cell, images, plainly


@pytest.mark.parametrize(("every", "steps"), [(1, 1), (2, 3), (4, 2), (8, 1)])
def test_states_and_inputs_equal_the_plain_ones(victim, every, steps):
    model, x = victim
    expected = plainly(model, x, variant="released", every=every, steps=steps)
    trajectory = rd.EntropyReduction(model, variant="released", every=every, steps=steps).trajectory(x)
    size = expected.states.abs().max()
    assert_close(trajectory.states / size, expected.states / size, rtol=0, atol=1e-10)
    assert_close(trajectory.inputs, expected.inputs, rtol=0, atol=1e-12)
    assert_close(trajectory.inner_entropy[:, :-1], expected.entropies, rtol=0, atol=1e-10)


def test_the_first_segment_is_undefended(victim):
    model, x = victim
    defended = rd.EntropyReduction(model, variant="released", every=4, steps=2).trajectory(x).states
    undefended = model.trajectory(x).states
    assert_close(defended[:4], undefended[:4], rtol=0, atol=1e-12)
    assert (defended[4:] - undefended[4:]).abs().amax() > 1e-3


def test_a_single_segment_changes_nothing_and_its_intervention_is_still_reported(victim):
    model, x = victim
    defended = rd.EntropyReduction(model, variant="released", every=8, steps=2)
    trajectory = defended.trajectory(x)
    assert_close(trajectory.states, model.trajectory(x).states, rtol=0, atol=1e-12)
    assert_close(trajectory.deployed, model(x), rtol=0, atol=1e-12)
    assert trajectory.inputs.shape == (1, *x.shape)
    assert (trajectory.inputs[0] - x).abs().max() > 1 / 255


def test_restarts_alone_move_the_states(victim):
    model, x = victim
    states = rd.EntropyReduction(model, variant="released", every=4, steps=0).trajectory(x).states
    assert (states - model.trajectory(x).states).abs().max() > 1e-3


@pytest.mark.parametrize("every", [3, 5, 9])
def test_every_must_divide_the_number_of_steps(every):
    with pytest.raises(ValueError, match="every must divide the solver's 8 steps"):
        rd.EntropyReduction(cell(), variant="released", every=every)


def test_a_solver_replaced_later_is_checked_again():
    model = cell()
    defended = rd.EntropyReduction(model, variant="released", every=2)
    model.solver = rd.Broyden(max_steps=5)
    with pytest.raises(ValueError, match="5 steps"):
        defended(images(1, 1, 4, 4))


def test_the_final_readout_applies_the_received_image():
    model, x = cell(), images(2, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant="released", every=2, steps=3)
    z = plainly(model, x, variant="released", every=2, steps=3).value
    f, _ = model.begin(x)
    y = f(z)
    for _ in range(model.gradient.steps):
        y = (y + f(y)) / 2
    assert_close(defended(x), model.head(y), rtol=0, atol=1e-10)


def test_a_prediction_skips_the_wasted_last_intervention():
    model, x = cell(), images(2, 1, 4, 4)
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    defended = rd.EarlyState(rd.EntropyReduction(model, variant="released", every=2, steps=3), state=8)
    with torch.no_grad():
        defended(x)
    assert len(calls) == 1 + 3 * (3 + 1)
