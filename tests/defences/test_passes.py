"""Passes in every grad mode and of every length, which leave the model as they found it."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import cell, images, mdeq


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_shorter_walk_is_the_beginning_of_the_whole(variant, every):
    model, x = cell(), images(3, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant=variant, every=every, steps=2)
    whole = defended.walk(x)
    for steps in (1, 3, 4, 6):
        part = defended.walk(x, steps=steps, judge_last=False)
        assert_close(part.solution.trajectory, whole.solution.trajectory[:steps], rtol=0, atol=1e-12)
        for state in range(1, steps + 1):
            assert_close(part.input_at(state), whole.input_at(state), rtol=0, atol=1e-12)


COMBINATIONS = [
    {"resolve": resolve, "history": history, "handed_on": handed_on}
    for resolve in (True, False)
    for history, handed_on in (("kept", "iterate"), ("restarted", "iterate"), ("restarted", "lowest"))
]


@pytest.mark.parametrize("switches", COMBINATIONS, ids=lambda s: "-".join(map(str, s.values())))
@pytest.mark.parametrize("solver", [rd.Broyden(max_steps=8), rd.Anderson(max_steps=8), rd.Picard(max_steps=8)])
def test_shorter_walks_and_single_images_agree_under_every_combination_of_switches(switches, solver):
    model, x = cell(solver=solver), images(2, 1, 4, 4)
    defended = rd.EntropyReduction(model, every=4, steps=1, direction="sign", **switches)
    whole = defended.walk(x).solution.trajectory
    for steps in (3, 6):
        assert_close(defended.walk(x, steps=steps).solution.trajectory, whole[:steps], rtol=0, atol=1e-12)
    assert_close(defended.walk(x[1:]).solution.trajectory, whole[:, 1:], rtol=0, atol=1e-10)


def test_the_image_in_force_at_a_state_is_the_one_its_step_was_taken_with(variant):
    model, x = cell(), images(3, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant=variant, every=2, steps=2)
    walked, inputs = defended.walk(x, measure=True), defended.trajectory(x).inputs
    first = {"paper": 2, "released": 3}[variant]
    for state in range(1, 9):
        interventions = (state - first) // 2 + 1
        expected = inputs[interventions - 1] if interventions > 0 else x
        assert torch.equal(walked.input_at(state), expected)


@pytest.mark.parametrize("solver", [rd.Broyden(max_steps=8), rd.Anderson(max_steps=8), rd.Picard(max_steps=8)])
def test_any_solver_can_be_defended(variant, solver):
    model, x = cell(), images(3, 1, 4, 4)
    model.solver = solver
    defended = rd.EntropyReduction(model, variant=variant, every=4, steps=3, direction="sign")
    trajectory = defended.trajectory(x)
    assert trajectory.states.shape == (8, 3, 12)
    assert trajectory.inputs.shape == (2, 3, 1, 4, 4)
    undefended = model.trajectory(x).states
    same = {"paper": 3, "released": 4}[variant]
    assert_close(trajectory.states[:same], undefended[:same], rtol=0, atol=1e-12)
    assert (trajectory.states[same:] - undefended[same:]).abs().amax((1, 2)).min() > 1e-5


def test_plain_iteration_in_the_papers_variant_is_the_written_out_loop():
    model, x = cell(), images(2, 1, 4, 4)
    model.solver = rd.Picard(max_steps=4)
    trajectory = rd.EntropyReduction(model, every=2, steps=3).trajectory(x)
    z = torch.zeros(2, 12, dtype=x.dtype)
    for t, image in enumerate([x, trajectory.inputs[0], trajectory.inputs[0], trajectory.inputs[1]]):
        z = model.dynamics(z, model.encoder(image))
        assert_close(trajectory.states[t], z, rtol=0, atol=1e-12)


def test_predictions_are_the_same_in_every_grad_mode(variant):
    model, x = mdeq(), images(2, 3, 8, 8)
    defended = rd.EntropyReduction(model, variant=variant, every=4, steps=1)
    expected = defended(x).detach()
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            trajectory = defended.trajectory(x.clone())
            assert_close(defended(x.clone()), expected, rtol=0, atol=1e-12)
            assert_close(trajectory.deployed, expected, rtol=0, atol=1e-12)
            assert_close(rd.EarlyState(defended, state=8)(x.clone()), trajectory.logits[-1])


def test_a_trajectory_holds_the_deployed_logits_of_every_predictor(variant):
    model, x = cell(), images(3, 1, 4, 4)
    for readout in ("lowest", "last"):
        model.readout = readout
        for predictor in (model, *predictors(model, variant)):
            assert_close(predictor.trajectory(x).deployed, predictor(x), rtol=0, atol=1e-14)


def predictors(model, variant):
    defended = rd.EntropyReduction(model, variant=variant, every=4, steps=1)
    return [defended, rd.EarlyState(defended, state=5), rd.EarlyState(model, state=5)]


def test_predictions_in_train_mode_are_the_deployed_ones_and_leave_no_trace(variant):
    model, x = mdeq(dropout=0.5), images(2, 3, 8, 8)
    expected = [predictor(x).detach() for predictor in predictors(model, variant)]
    trajectory = rd.EntropyReduction(model, variant=variant, every=4, steps=1).trajectory(x)
    model.train()
    model.encoder.eval()
    model.head.requires_grad_(False)
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)

    def snapshot():
        modes = {name: m.training for name, m in model.named_modules()}
        return modes, {name: p.requires_grad for name, p in model.named_parameters()}

    before = snapshot()
    state = {name: v.clone() for name, v in model.state_dict().items()}
    random = torch.get_rng_state()
    for predictor, logits in zip(predictors(model, variant), expected, strict=True):
        with torch.no_grad():
            assert_close(predictor(x), logits, rtol=0, atol=1e-12)
        images_ = x.clone().requires_grad_()
        ours = predictor(images_)
        assert_close(ours, logits, rtol=0, atol=1e-12)
        (slope,) = torch.autograd.grad(ours.sum(), images_)
        assert slope.abs().max() > 0
    again = rd.EntropyReduction(model, variant=variant, every=4, steps=1).trajectory(x)
    assert_close(again.logits, trajectory.logits, rtol=0, atol=1e-12)
    assert snapshot() == before
    assert all((p.grad == 3).all() for p in model.parameters())
    assert all(torch.equal(v, state[name]) for name, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_an_exception_during_a_pass_leaves_no_trace(variant):
    model, x = mdeq(), images(2, 3, 8, 8)
    model.train()
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of paper")

    model.dynamics.out_norm[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of paper"):
        rd.EntropyReduction(model, variant=variant, steps=2)(x)
    assert all(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert torch.is_grad_enabled()


def test_the_received_images_are_not_changed(variant):
    model, x = cell(), images(2, 1, 4, 4)
    copy = x.clone()
    rd.EntropyReduction(model, variant=variant, steps=2)(x)
    assert torch.equal(x, copy)


def test_the_gradient_of_a_defended_prediction_takes_the_moved_distance_as_constant(variant):
    model, x = cell(), images(2, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant=variant, steps=3)
    walked = defended.walk(x)
    z = model.read(walked.solution).z
    read_at = walked.x_read.clone().requires_grad_()
    u = model.encoder(read_at)
    y = model.dynamics(z, u)
    for _ in range(model.gradient.steps):
        y = (y + model.dynamics(y, u)) / 2
    (expected,) = torch.autograd.grad(model.head(y)[:, 1].sum(), read_at)
    pixels = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(defended(pixels)[:, 1].sum(), pixels)
    assert_close(slope, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [0, 2])
def test_without_interventions_there_are_no_purified_images(steps):
    model, x = cell(), images(3, 1, 4, 4)
    trajectory = rd.EntropyReduction(model, every=9, steps=steps).trajectory(x)
    assert trajectory.inputs.shape == (0, *x.shape)
    assert_close(trajectory.logits, model.trajectory(x).logits, rtol=0, atol=0)


def test_without_inner_iterations_the_entropies_are_still_reported(variant):
    model, x = cell(), images(3, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant=variant, every=4, steps=0)
    trajectory, (f, _) = defended.trajectory(x), model.begin(x)
    looked_at = torch.stack([model.head(f(trajectory.states[t - 1])) for t in (4, 8)])
    expected = -(looked_at.softmax(-1) * looked_at.log_softmax(-1)).sum(-1)
    assert_close(trajectory.inner_entropy, expected[:, None], rtol=0, atol=1e-12)
