"""Predictions from an intermediate state of defended and undefended models."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import cell, images


def test_the_prediction_is_the_head_at_the_state(victim):
    model, x = victim
    for predictor in (model, rd.EntropyReduction(model, steps=2)):
        trajectory = predictor.trajectory(x)
        for state in (1, 8):
            logits = rd.EarlyState(predictor, state=state)(x)
            assert_close(logits, trajectory.logits[state - 1], rtol=0, atol=1e-12)


def test_defending_the_early_state_is_reading_the_defended_pass_early(variant):
    model, x = cell(), images(3, 1, 4, 4)
    settings = {"variant": variant, "steps": 2}
    for state in (1, 2, 5):
        one = rd.EarlyState(rd.EntropyReduction(model, **settings), state=state)
        other = rd.EntropyReduction(rd.EarlyState(model, state=state), **settings)
        assert torch.equal(one(x), other(x))
    assert torch.equal(one.trajectory(x).states, other.trajectory(x).states)


def test_only_the_steps_up_to_the_state_are_taken():
    model, x = cell(), images(3, 1, 4, 4)
    calls = []
    model.dynamics.register_forward_hook(lambda *_: calls.append(1))
    rd.EarlyState(model, state=3)(x)
    assert len(calls) == 3


POLICIES = [rd.Phantom(), rd.OneStep(), rd.Implicit(), rd.Neumann(), rd.SharedInverse(), rd.ThroughSolver()]


@pytest.mark.parametrize("gradient", POLICIES, ids=lambda p: type(p).__name__)
def test_the_gradient_is_that_of_the_policy_at_the_state(gradient):
    model, x = cell(gradient=gradient), images(3, 1, 4, 4)
    pixels = x.clone().requires_grad_()
    early = rd.EarlyState(model, state=4)
    logits = early(pixels)
    assert_close(logits, model.trajectory(x).logits[3], rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(logits[:, 0].sum(), pixels)
    reference = x.clone().requires_grad_()
    stopped = model.run(reference, max_steps=4, readout="last")
    (expected,) = torch.autograd.grad(stopped.logits[:, 0].sum(), reference)
    assert_close(slope, expected, rtol=1e-9, atol=1e-12)


def test_selection_takes_the_most_accurate_state_and_the_earliest_if_tied():
    model, x = cell(), images(40, 1, 4, 4)
    predictions = model.trajectory(x).logits.argmax(-1)
    y = predictions[4].clone()
    assert rd.EarlyState.select(model, x, y).state == 1 + int((predictions == y).sum(1).argmax())
    y = (predictions[0] + 1) % 4
    y[:3] = predictions[2, :3]
    best = (predictions == y).sum(1)
    chosen = rd.EarlyState.select(model, x, y, batch_size=7)
    assert best[chosen.state - 1] == best.max()
    assert (best[: chosen.state - 1] < best.max()).all()
    assert chosen.predictor is model


@pytest.mark.parametrize("state", [0, 9, -1])
def test_states_count_from_one_to_the_last(state):
    with pytest.raises(ValueError, match="state counts from 1 to the solver's 8 steps"):
        rd.EarlyState(cell(), state=state)


def test_a_solver_shortened_later_is_noticed():
    model = cell()
    early = rd.EarlyState(model, state=8)
    model.solver = rd.Broyden(max_steps=4)
    with pytest.raises(ValueError, match="4 steps"):
        early(images(1, 1, 4, 4))
    with pytest.raises(ValueError, match="4 steps"):
        rd.EntropyReduction(early)(images(1, 1, 4, 4))


def test_the_default_is_the_eighth_state():
    model, x = cell(), images(2, 1, 4, 4)
    assert_close(rd.EarlyState(model)(x), model.trajectory(x).logits[7], rtol=0, atol=1e-12)
