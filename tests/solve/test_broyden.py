"""Broyden's method against its textbook form with dense matrices."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Broyden, Iteration, Picard, fixed_point
from tests.problems import Linear, TanhCell
from tests.solve.dense import as_matrix, dense_broyden


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (TanhCell.random(3, 12, 1.3), 8),
        # more factors than the buffers start with; a radius nearer to 1 makes denominators small, the inverse large
        # and its last digits the machine's
        (Linear.random(3, (100,), 0.8, symmetric=True), 20),
    ],
    ids=["tanh, 8 steps", "linear, 20 steps"],
)
def test_iterates_and_inverse_are_the_dense_ones(problem, steps):
    solution = fixed_point(problem, problem.z0, Broyden(max_steps=steps), tol=0.0)
    iterates, inverses = dense_broyden(problem, problem.z0, steps)
    assert (solution.residual > 1e-9).all(), "near the fixed point rounding would decide the factors"
    assert_close(solution.trajectory, iterates, rtol=0, atol=1e-10)
    assert solution.inverse.rank == steps
    assert_close(as_matrix(solution.inverse), inverses[-1], rtol=0, atol=1e-8)


def test_the_inverse_satisfies_the_secant_equation_of_the_last_step():
    problem = TanhCell.random(3, 8, 1.3)
    solution = fixed_point(problem, problem.z0, Broyden(max_steps=6), tol=0.0)
    z, before = solution.trajectory[-1], solution.trajectory[-2]
    dg = (problem(z) - z) - (problem(before) - before)
    assert_close(solution.inverse.apply(dg), z - before, rtol=0, atol=1e-10)


def test_the_inverse_approaches_that_of_the_jacobian():
    problem = Linear.random(2, (4,), 0.8)
    inverse = fixed_point(problem, problem.z0, Broyden(max_steps=8), tol=1e-12).inverse
    z = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact = torch.linalg.solve(problem.A - torch.eye(4, dtype=torch.float64), z)
    assert (inverse.apply(z) - exact).norm() < 0.5 * (-z - exact).norm()


def test_a_factor_with_a_vanishing_denominator_is_dropped():
    """g = c everywhere, so dg = 0: B stays -I and the iteration goes on by c."""
    c = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    solution = fixed_point(lambda z: z + c, torch.zeros_like(c), Broyden(max_steps=4), tol=0.0)
    assert_close(solution.trajectory, torch.arange(1.0, 5.0, dtype=torch.float64)[:, None, None] * c)
    assert_close(as_matrix(solution.inverse), -torch.eye(2, dtype=torch.float64).expand(2, 2, 2))
    assert (solution.inverse.scale == 0).all()


def test_a_dropped_factor_affects_its_own_sample_only():
    problem = TanhCell.random(2, 4, 1.2)

    def f(z):
        return torch.stack([problem(z)[0], z[1] + 1])

    mixed = fixed_point(f, problem.z0, Broyden(max_steps=6), tol=0.0)
    alone = fixed_point(problem[[0]], problem.z0[:1], Broyden(max_steps=6), tol=0.0)
    assert_close(mixed.trajectory[:, :1], alone.trajectory, rtol=0, atol=1e-12)


def test_reading_the_inverse_at_a_pause_does_not_change_the_solve():
    problem = TanhCell.random(3, 12, 1.3)
    iterates, inverses = dense_broyden(problem, problem.z0, 12)
    iteration = Iteration(problem, problem.z0, Broyden(max_steps=12), tol=0.0)
    for t in range(1, 13):
        solution = iteration.advance(1).solution()
        assert_close(as_matrix(solution.inverse), inverses[t - 1], rtol=0, atol=1e-8)
    assert_close(solution.trajectory, iterates, rtol=0, atol=1e-10)


def test_a_solver_without_an_inverse_has_none():
    problem = TanhCell.random(2, 4, 0.9)
    assert fixed_point(problem, problem.z0, Picard()).inverse is None
