"""What model(x), run and trajectory compute."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import softmax

import robustdeq as rd


def exact(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def unrolled(f, z, steps, damping):
    y = f(z)
    for _ in range(steps):
        y = (1 - damping) * y + damping * f(y)
    return y


@torch.no_grad()
def test_logits_are_the_head_at_the_unrolled_lowest_residual_iterate(model, x):
    model.solver, model.tol = rd.Broyden(max_steps=10), 0.0
    trajectory = model.trajectory(x)
    lowest = trajectory.residual.argmin(0)
    assert torch.equal(trajectory.lowest_step, lowest + 1)
    f, _ = model.begin(x)
    z = trajectory.states[lowest, torch.arange(len(x))]
    exact(model(x), model.head(f.unpack(unrolled(f, z, 5, 0.5))))


@torch.no_grad()
def test_readout_last_reads_the_last_iterate(model, x):
    model.solver, model.tol = rd.Picard(max_steps=7, damping=1.9), 0.0
    trajectory = model.trajectory(x)
    assert (trajectory.lowest_step < 7).any()
    f, _ = model.begin(x)
    expected = model.head(f.unpack(unrolled(f, trajectory.states[-1], 5, 0.5)))
    exact(model.run(x, readout="last").logits, expected)
    model.readout = "last"
    exact(model(x), expected)
    model.readout = "best"
    with pytest.raises(ValueError, match="readout must be 'lowest' or 'last', got 'best'"):
        model(x)


@pytest.mark.parametrize("freezes", [False, True])
def test_a_trajectory_has_n_rows_of_every_field(model, x, freezes):
    model.tol = 0.0
    if freezes:
        model.tol = 1.01 * model.trajectory(x).residual[:6].amin(0).max().item()
    trajectory = model.trajectory(x)
    dimension = (4 * 8 * 8) + (8 * 4 * 4)
    assert trajectory.states.shape == (8, 3, dimension)
    assert trajectory.logits.shape == (8, 3, 5)
    assert trajectory.entropy.shape == trajectory.residual.shape == (8, 3)
    for field in (trajectory.status, trajectory.steps, trajectory.lowest_step):
        assert field.shape == (3,)
    frozen = trajectory.steps < 8
    assert frozen.all() if freezes else not frozen.any()
    for i, steps in enumerate(trajectory.steps.tolist()):
        assert (trajectory.states[steps:, i] == trajectory.states[steps - 1, i]).all()


@torch.no_grad()
def test_trajectory_logits_are_the_head_at_each_state_and_entropy_is_in_nats(model, x):
    trajectory = model.trajectory(x)
    f, _ = model.begin(x)
    for state, logits, entropy in zip(trajectory.states, trajectory.logits, trajectory.entropy, strict=True):
        exact(logits, model.head(f.unpack(state)))
        p = softmax(logits, -1)
        exact(entropy, -(p * p.log()).sum(-1))


@torch.no_grad()
def test_the_first_state_is_f_of_zero_and_residuals_are_relative(model, x):
    trajectory = model.trajectory(x)
    f, z0 = model.begin(x)
    exact(trajectory.states[0], f(z0))
    for z, residual in zip(trajectory.states, trajectory.residual, strict=True):
        exact(residual, (f(z) - z).norm(dim=1) / (f(z).norm(dim=1) + 1e-9))


@torch.no_grad()
def test_logits_are_batch_independent(model, make_images):
    images = make_images(5, 3, 8, 8)
    model.tol = 0.0
    model.tol = model.trajectory(images).residual[3].median().item()  # now images freeze at different steps
    assert len(set(model.trajectory(images).steps.tolist())) > 1
    together = model(images)
    exact(torch.cat([model(image[None]) for image in images]), together)
    exact(model(images[[3, 0, 3]]), together[[3, 0, 3]])


@torch.no_grad()
def test_run_takes_other_settings_for_one_pass(model, x):
    expected = model(x)
    short = model.run(x, max_steps=2, gradient=rd.OneStep(), record=True)
    assert short.state.solution.trajectory.shape[0] == 2
    exact(short.y, short.f(short.state.z))
    assert model.run(x).state.solution.trajectory is None
    exact(model(x), expected)


@torch.no_grad()
def test_solver_and_gradient_may_be_replaced(model, x):
    before = model(x)
    model.solver = replace(model.solver, max_steps=2)
    assert model.trajectory(x).states.shape[0] == 2
    exact(model(x), model.run(x, max_steps=2).logits)
    model.gradient = replace(model.gradient, steps=1)
    f, _ = model.begin(x)
    exact(model(x), model.head(f.unpack(unrolled(f, model.run(x).state.z, 1, 0.5))))
    assert (model(x) - before).abs().max() > 1e-6


def test_truncated_is_plain_applications_of_f_with_ordinary_backprop(model, x):
    x.requires_grad_()
    f, z = model.begin(x)
    for _ in range(3):
        z = f(z)
    expected = model.head(f.unpack(z))
    exact(model.truncated(x, layers=3), expected)
    (grad,) = torch.autograd.grad(model.truncated(x, layers=3).sum(), x)
    exact(grad, torch.autograd.grad(expected.sum(), x)[0])


def test_a_deq_is_a_predictor(model):
    assert isinstance(model, rd.Predictor)
