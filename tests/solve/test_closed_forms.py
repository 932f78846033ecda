"""Solvers find fixed points that are known in closed form."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Anderson, Broyden, Picard, fixed_point
from tests.conformance.solvers import SOLVERS, every_solver
from tests.problems import Cosine, Linear, TanhCell, generator

PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tol", "atol"), [(torch.float64, 1e-11, 1e-9), (torch.float32, 1e-5, 2e-4)], ids=["float64", "float32"]
)
SHAPES = pytest.mark.parametrize("latent", [(), (4,), (2, 3, 2)], ids=["scalar", "vector", "maps"])


@every_solver
@PRECISIONS
@SHAPES
def test_a_linear_contraction_is_solved(make_solver, dtype, tol, atol, latent):
    problem = Linear.random(3, latent, 0.5, dtype=dtype, symmetric=True)
    solution = fixed_point(problem, problem.z0, make_solver(max_steps=70), tol=tol).require_converged()
    assert solution.value.shape == problem.u.shape
    assert solution.value.dtype == dtype
    assert_close(solution.value, problem.fixed_point, rtol=0, atol=atol)


@every_solver
@PRECISIONS
@SHAPES
def test_the_fixed_point_of_cosine_is_found(make_solver, dtype, tol, atol, latent):
    problem = Cosine(torch.rand(3, *latent, dtype=dtype, generator=generator()))
    solution = fixed_point(problem, problem.z0, make_solver(max_steps=70), tol=tol).require_converged()
    assert_close(solution.value, torch.full_like(problem.u, Cosine.FIXED_POINT), rtol=0, atol=atol)


@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_broyden_is_exact_on_a_linear_map_after_twice_its_dimension_in_steps(radius):
    """Also where plain iteration diverges (Gay, 1979)."""
    problem = Linear.random(6, (4,), radius, seed=3)
    solution = fixed_point(problem, problem.z0, Broyden(max_steps=8, divergence=1e12), tol=0.0)
    assert_close(solution.value, problem.fixed_point, rtol=0, atol=1e-8)
    too_few = fixed_point(problem, problem.z0, Broyden(max_steps=4, divergence=1e12), tol=0.0)
    assert (too_few.value - problem.fixed_point).abs().amax(1).min() > 1e-6


def test_picard_takes_damped_steps_along_g():
    problem = Linear.random(2, (3,), 0.7)
    z, expected = problem.z0, []
    for _ in range(4):
        z = 0.6 * z + 0.4 * problem(z)
        expected.append(z)
    assert_close(
        fixed_point(problem, problem.z0, Picard(max_steps=4, damping=0.4), tol=0.0).trajectory,
        torch.stack(expected),
        rtol=0,
        atol=1e-14,
    )


def test_damping_solves_a_map_on_which_plain_iteration_diverges():
    problem = Linear(torch.ones(1, 2, dtype=torch.float64), -1.5 * torch.eye(2, dtype=torch.float64)[None])
    assert not fixed_point(problem, problem.z0, Picard(max_steps=60), tol=1e-8).converged.any()
    damped = fixed_point(problem, problem.z0, Picard(max_steps=60, damping=0.4), tol=1e-8).require_converged()
    assert_close(damped.value, problem.fixed_point, rtol=0, atol=1e-7)


def test_anderson_minimises_the_mixed_residual_over_its_memory():
    """Against its definition: least squares with a sum-to-one constraint, solved by the KKT system."""
    problem = TanhCell.random(2, 6, 1.2)
    memory, ridge = 3, 1e-4
    trajectory = fixed_point(problem, problem.z0, Anderson(max_steps=7, memory=memory, ridge=ridge), tol=0.0).trajectory
    for b in range(2):
        f = problem[[b]]
        zs = [torch.zeros(6, dtype=torch.float64)]
        for t in range(7):
            Z = torch.stack(zs[-memory:])
            F = torch.stack([f(z[None])[0] for z in Z])
            G = F - Z
            m = len(Z)
            gram = G @ G.T
            H = gram + ridge * gram.diagonal().max() * torch.eye(m, dtype=gram.dtype)
            ones = torch.ones(m, 1, dtype=gram.dtype)
            kkt = torch.cat([torch.cat([H, ones], 1), torch.cat([ones.T, torch.zeros(1, 1, dtype=gram.dtype)], 1)], 0)
            rhs = torch.zeros(m + 1, dtype=gram.dtype)
            rhs[-1] = 1
            zs.append(torch.linalg.solve(kkt, rhs)[:m] @ F)
            assert_close(trajectory[t, b], zs[-1], rtol=0, atol=1e-10)


def test_anderson_needs_fewer_steps_than_plain_iteration():
    problem = Linear.random(4, (8,), 0.95, symmetric=True)
    steps = {
        name: fixed_point(problem, problem.z0, solver(max_steps=400), tol=1e-6).require_converged().steps
        for name, solver in (("anderson", Anderson), ("picard", Picard))
    }
    assert (steps["anderson"] < steps["picard"] / 2).all()


def test_solvers_agree():
    problem = TanhCell.random(4, 10, 0.6)
    values = [
        fixed_point(problem, problem.z0, make(max_steps=90), tol=1e-12).require_converged().value
        for make in SOLVERS.values()
    ]
    for value in values[1:]:
        assert_close(value, values[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("criterion", ["relative", "absolute"])
def test_residuals_are_their_formulas(criterion):
    problem = TanhCell.random(3, 5, 1.1)
    solution = fixed_point(problem, problem.z0, Broyden(max_steps=5, criterion=criterion), tol=0.0)
    for t, z in enumerate(solution.trajectory):
        norm = (problem(z) - z).norm(dim=1)
        relative = norm / (problem(z).norm(dim=1) + 1e-9)
        assert_close(solution.residual_norms[t], norm, rtol=1e-12, atol=0)
        assert_close(solution.residuals[t], relative if criterion == "relative" else norm, rtol=1e-12, atol=0)
