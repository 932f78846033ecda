"""Edge cases: broken samples in a coupled batch, changed dynamics, precision, dynamics that misbehave."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.solve import SolvedState


def halving(b):
    return lambda z: 0.5 * torch.tanh(z) + b


def test_a_nan_sample_does_not_hide_the_residual_of_a_coupled_batch():
    b = torch.rand(4, 6, dtype=torch.float64)
    z0 = torch.zeros_like(b)
    broken = b.clone()
    broken[0] = torch.nan
    solver = rd.Broyden(max_steps=8, batch_coupled=True)
    result = rd.fixed_point(halving(broken), z0, solver, tol=1e-9)
    without = rd.fixed_point(halving(b[1:]), z0[1:], solver, tol=1e-9)
    assert result.status[0] == rd.Status.NON_FINITE
    assert_close(result.value[1:], without.value, rtol=0, atol=1e-12)
    assert result.lowest_step[1:].tolist() == without.lowest_step.tolist()


def test_a_sample_reactivated_by_a_rebase_does_not_diverge_at_its_first_residual():
    z0 = torch.zeros(1, 2, dtype=torch.float64)
    iteration = rd.Iteration(lambda z: 1e-5 * torch.sin(z) + 2, z0, rd.Broyden(max_steps=12), tol=1e-8).advance(3)
    assert iteration.status.tolist() == [rd.Status.CONVERGED]
    result = iteration.rebase(lambda z: 0.5 * torch.sin(z) + 3).advance().solution()
    assert result.status.tolist() == [rd.Status.CONVERGED]
    assert_close(result.value, 0.5 * torch.sin(result.value) + 3, rtol=0, atol=1e-6)


def test_an_overflow_does_not_give_a_residual_of_zero():
    result = rd.fixed_point(lambda z: 0.5 * z + 1e19, torch.zeros(2, 8), rd.Picard())
    assert (result.status == rd.Status.NON_FINITE).all()
    assert result.residual.isinf().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_states_are_refused(dtype):
    with pytest.raises(TypeError, match="too coarse"):
        rd.fixed_point(lambda z: 0.5 * z, torch.zeros(1, 2, dtype=dtype), rd.Broyden())


@pytest.mark.parametrize("solver", [rd.Broyden(max_steps=12), rd.Anderson(max_steps=12), rd.Picard(max_steps=12)])
def test_under_autocast_f_computes_in_half_precision_and_the_state_stays_float32(solver):
    weight = 0.3 * torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) / 8**0.5
    b = torch.ones(3, 8)
    seen = set()

    def f(z):
        product = z @ weight
        seen.add(product.dtype)
        return torch.tanh(product) + b

    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = rd.fixed_point(f, torch.zeros(3, 8), solver, tol=1e-2)
    assert seen == {torch.bfloat16}
    assert result.value.dtype == torch.float32
    assert result.converged.all()


def test_a_model_runs_under_autocast():
    model = rd.create_model("mdeq-nano").eval()
    x = torch.rand(2, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        images = x.clone().requires_grad_()
        logits = model(images)
        trajectory = model.trajectory(x)
        seen = rd.UnrolledState(model, state=2, steps=3)(images)
    assert seen.isfinite().all()
    logits.float().sum().backward()
    assert images.grad.isfinite().all()
    assert trajectory.states.dtype == torch.float32
    assert_close(logits.float(), model(x), rtol=0.1, atol=0.05)


def test_f_that_works_in_place_is_refused():
    with pytest.raises(ValueError, match="in place"):
        rd.fixed_point(lambda z: z.mul_(0.5).add_(1), torch.zeros(1, 2), rd.Picard())


@pytest.mark.parametrize("scale", [1e-12, 1e-30])
def test_the_implicit_gradient_of_a_tiny_loss_is_the_scaled_gradient(scale):
    torch.manual_seed(0)
    weight = 0.8 * torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]

    def gradient(factor):
        x = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(2, 5).requires_grad_()

        def f(z):
            return torch.tanh(z @ weight) + x

        with torch.no_grad():
            solution = rd.fixed_point(f, torch.zeros(2, 5, dtype=torch.float64), rd.Broyden(max_steps=20))
        state = SolvedState(z=solution.value, step=solution.lowest_step, solution=solution)
        y = rd.Implicit().connect(f, state)
        return torch.autograd.grad(factor * y.square().sum(), x)[0] / factor

    assert_close(gradient(scale), gradient(1.0), rtol=1e-9, atol=0)


def test_the_jacobian_penalty_works_in_inference_mode():
    with torch.inference_mode():
        z = torch.ones(2, 3)
        penalty = rd.jacobian_penalty(lambda z: 0.5 * z, z, generator=torch.Generator().manual_seed(0))
    assert penalty > 0
