"""Frozen and broken samples under the real solvers."""

import torch
from torch.testing import assert_close

from robustdeq import Status, fixed_point
from tests.conformance.solvers import every_solver
from tests.problems import BREAKING, DIVERGING, HEALTHY, NAN, QUICK, Linear, troubled
from tests.stubs import Scripted, column, own_size

STEPS = 20


def solve(make_solver, **options):
    problem = troubled()
    return problem, fixed_point(problem, problem.z0, make_solver(max_steps=STEPS, **options), tol=1e-7)


@every_solver
def test_every_status_is_recognised(make_solver):
    _, solution = solve(make_solver)
    assert solution.status[[DIVERGING, BREAKING, NAN, QUICK]].tolist() == [
        Status.DIVERGED,
        Status.NON_FINITE,
        Status.NON_FINITE,
        Status.CONVERGED,
    ]
    assert solution.status[HEALTHY] in (Status.STEP_LIMIT, Status.CONVERGED)
    assert solution.steps[NAN] == 1
    assert solution.steps[HEALTHY] > solution.steps[QUICK]


@every_solver
def test_a_frozen_sample_stays_where_it_stopped(make_solver):
    _, solution = solve(make_solver)
    assert solution.trajectory.shape[0] == STEPS
    assert (solution.steps < STEPS).sum() >= 4
    for i, taken in enumerate(solution.steps.tolist()):
        rest = solution.trajectory[taken - 1 :, i]
        assert_close(rest, rest[:1].expand_as(rest), rtol=0, atol=0, equal_nan=True)
        assert_close(solution.last[i], rest[0], rtol=0, atol=0, equal_nan=True)


@every_solver
def test_the_value_is_the_lowest_residual_row_of_the_trajectory(make_solver):
    _, solution = solve(make_solver)
    for i, step in enumerate(solution.lowest_step.tolist()):
        assert_close(solution.value[i], solution.trajectory[step - 1, i], rtol=0, atol=0, equal_nan=True)
        if i != NAN:
            residuals = solution.residuals[:, i].nan_to_num(torch.inf)
            assert step - 1 == residuals.argmin()
            assert solution.residual[i] == residuals.min()


@every_solver
def test_a_nan_sample_is_nan_and_the_others_reach_their_fixed_points(make_solver):
    problem, solution = solve(make_solver)
    assert solution.value[NAN].isnan().any()
    assert solution.value[[HEALTHY, DIVERGING, BREAKING, QUICK]].isfinite().all()
    assert_close(solution.value[QUICK], problem.fixed_point[QUICK], rtol=1e-6, atol=0)


@every_solver
def test_a_sample_that_breaks_later_keeps_its_best_finite_value(make_solver):
    problem, solution = solve(make_solver)
    assert solution.steps[BREAKING] > 1
    assert solution.lowest_step[BREAKING] < solution.steps[BREAKING]
    distance = (solution.value - problem.fixed_point).norm(dim=1)
    assert problem.reach[BREAKING] < distance[BREAKING] < 0.7 * problem.fixed_point[BREAKING].norm()


@every_solver
def test_a_coupled_batch_of_one_is_an_uncoupled_one(make_solver):
    problem = Linear.random(1, (5,), 0.8)
    apart, coupled = (
        fixed_point(problem, problem.z0, make_solver(max_steps=9, batch_coupled=b), tol=1e-4) for b in (False, True)
    )
    for name in ("value", "trajectory", "residuals", "residual_norms", "status", "steps", "lowest_step"):
        assert_close(getattr(apart, name), getattr(coupled, name), rtol=1e-14, atol=0)


@every_solver
def test_a_coupled_batch_stops_together_on_one_residual(make_solver):
    problem = troubled()[[HEALTHY, QUICK]]
    apart, coupled = (
        fixed_point(problem, problem.z0, make_solver(max_steps=STEPS, batch_coupled=b), tol=1e-3) for b in (False, True)
    )
    assert apart.steps[0] > apart.steps[1]
    assert coupled.steps[0] == coupled.steps[1]
    assert (coupled.residuals[:, 0] == coupled.residuals[:, 1]).all()
    assert (coupled.trajectory[:, 1] != apart.trajectory[:, 1]).any(), "the quick sample was carried along"
    z = coupled.trajectory[0]
    g, fz = problem(z) - z, problem(z)
    assert_close(coupled.residuals[0, 0], g.norm() / (fz.norm() + 1e-9), rtol=1e-12, atol=0)


def test_coupling_lets_one_sample_choose_the_others_result():
    """The sample with the large residual decides which iterate is returned for both."""
    script = torch.cat([column(100, 50, 60), column(3, 2, 1)], 1)
    z0 = torch.ones(2, 1, dtype=torch.float64)
    results = [
        fixed_point(own_size, z0, Scripted(max_steps=3, script=script, criterion="absolute", batch_coupled=b))
        for b in (False, True)
    ]
    assert [r.lowest_step.tolist() for r in results] == [[2, 3], [2, 2]]
    assert [r.value.flatten().tolist() for r in results] == [[50, 1], [50, 2]]
