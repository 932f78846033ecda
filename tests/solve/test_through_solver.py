"""ThroughSolver is the exact derivative of the finite iteration, converged or not."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Broyden, ThroughSolver, fixed_point
from tests.conformance.solvers import every_solver
from tests.problems import TanhCell, generator
from tests.solve.policies import equilibrium, finite_differences, gradient

POLICY = ThroughSolver()


@pytest.fixture
def cell():
    """Three samples; the second converges at once and freezes while the others go on."""
    cell = TanhCell.random(3, 4, 1.2)
    cell.W[1] *= 1e-3
    return cell


@every_solver
@pytest.mark.parametrize("steps", [1, 4])
def test_the_gradient_is_the_finite_difference_of_few_steps(make_solver, cell, steps):
    c = torch.randn(3, 4, dtype=torch.float64, generator=generator(11))
    options = {"solver": make_solver(max_steps=steps), "tol": 1e-4}
    assert not fixed_point(cell, cell.z0, make_solver(max_steps=steps), tol=1e-4).converged.all()
    with torch.no_grad():
        numeric = finite_differences(lambda u: (c * equilibrium(POLICY, cell, u, **options)).sum(), cell.u)
    assert_close(gradient(POLICY, cell, c, **options), numeric, rtol=0, atol=1e-6)


@every_solver
def test_gradcheck_passes_with_a_frozen_sample_in_the_batch(make_solver, cell):
    solver = make_solver(max_steps=6)
    frozen = fixed_point(cell, cell.z0, solver, tol=0.02)
    assert frozen.steps[1] < 6
    u = cell.u.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda u: equilibrium(POLICY, cell, u, solver=solver, tol=0.02), u)


@every_solver
def test_samples_frozen_long_ago_have_no_nan_gradients(make_solver, cell):
    result = gradient(POLICY, cell, torch.ones_like(cell.u), solver=make_solver(max_steps=30), tol=1e-6)
    assert result.isfinite().all()
    assert (result.abs().sum(1) > 0).all()


@every_solver
def test_a_sample_that_starts_at_its_fixed_point_has_no_nan_gradients(make_solver):
    """g is exactly zero there: every denominator vanishes."""
    cell = TanhCell.random(2, 4, 0.9)
    cell.u[0] = 0
    result = gradient(POLICY, cell, torch.ones_like(cell.u), solver=make_solver(max_steps=6), tol=0.0)
    assert result.isfinite().all()


def test_a_dropped_factor_leaves_a_finite_gradient():
    c = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    value = fixed_point(lambda z: z + c, torch.zeros(1, 2, dtype=torch.float64), Broyden(max_steps=3), tol=0.0).last
    (result,) = torch.autograd.grad(value.sum(), c)
    assert_close(result, torch.full_like(c, 3.0))


def test_gradients_are_correct_beyond_the_initial_buffer_size(cell):
    options = {"solver": Broyden(max_steps=11), "tol": 0.0}
    cell = TanhCell.random(1, 14, 2.0)
    c = torch.randn(1, 14, dtype=torch.float64, generator=generator(11))
    with torch.no_grad():
        numeric = finite_differences(lambda u: (c * equilibrium(POLICY, cell, u, **options)).sum(), cell.u, 1e-6)
    exact = gradient(POLICY, cell, c, **options)
    assert_close(exact, numeric, rtol=1e-5, atol=1e-6 * exact.abs().max().item())
