"""Gradients of a whole model with respect to pixels and weights."""

import pytest
import torch
import torch.nn.functional as F

import robustdeq as rd

POLICIES = [rd.Phantom(), rd.OneStep(), rd.Implicit(), rd.Neumann(), rd.SharedInverse(), rd.ThroughSolver()]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_every_policy_gives_finite_gradients_to_pixels_and_weights(model, x, policy):
    model.gradient = policy
    x.requires_grad_()
    F.cross_entropy(model(x), torch.tensor([0, 1, 2])).backward()
    assert x.grad.isfinite().all()
    assert all(image.abs().max() > 0 for image in x.grad)
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


@pytest.mark.parametrize("solver", [rd.Broyden(max_steps=4), rd.Anderson(max_steps=4), rd.Picard(max_steps=3)])
@pytest.mark.parametrize("readout", ["lowest", "last"])
def test_gradient_through_the_solver_agrees_with_finite_differences_of_the_logits(make_mdeq, x, solver, readout):
    model = make_mdeq(gradient=rd.ThroughSolver(), solver=solver, readout=readout, tol=0.0)
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    direction = torch.randn(x.shape, generator=generator, dtype=torch.float64)
    direction /= direction.norm()
    x.requires_grad_()
    (grad,) = torch.autograd.grad((model(x) * weights).sum(), x)
    step = 1e-6
    with torch.no_grad():
        slope = ((model(x + step * direction) - model(x - step * direction)) * weights).sum() / (2 * step)
    analytic = (grad * direction).sum()
    assert analytic.abs() > 1e-3
    torch.testing.assert_close(analytic, slope, rtol=1e-5, atol=1e-5)


def test_the_phantom_gradient_is_that_of_the_unrolling_from_a_constant_state(model, x):
    x.requires_grad_()
    result = model.run(x)
    assert not result.state.z.requires_grad
    (grad,) = torch.autograd.grad(result.logits.sum(), x)
    f, _ = model.begin(x)
    y = f(result.state.z)
    for _ in range(5):
        y = (y + f(y)) / 2
    (expected,) = torch.autograd.grad(model.head(f.unpack(y)).sum(), x)
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-10)
