"""The iteration can be paused, and continued with another f."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Broyden, Iteration, Picard, Status, fixed_point
from tests.conformance.solvers import every_solver
from tests.problems import Linear, TanhCell, troubled
from tests.stubs import Counting

FIELDS = ("trajectory", "value", "last", "residual", "residuals", "residual_norms", "steps", "lowest_step", "status")


def assert_same(a, b, atol):
    for name in FIELDS:
        assert_close(getattr(a, name), getattr(b, name), rtol=0, atol=atol, equal_nan=True)


@every_solver
@pytest.mark.parametrize("problem", [TanhCell.random(3, 6, 1.2), troubled()], ids=["tanh", "troubled"])
def test_a_pause_changes_nothing(make_solver, problem):
    whole = fixed_point(problem, problem.z0, make_solver(max_steps=9), tol=1e-6)
    paused = Iteration(problem, problem.z0, make_solver(max_steps=9), tol=1e-6).advance(2)
    assert not paused.done
    assert paused.solution().trajectory.shape[0] == 2
    paused.advance()
    assert paused.done
    assert_same(paused.solution(), whole, 0)
    assert paused.evaluations == whole.evaluations


def test_a_solution_taken_at_a_pause_does_not_change_afterwards():
    problem = TanhCell.random(3, 6, 1.2)
    iteration = Iteration(problem, problem.z0, Broyden(max_steps=9), tol=0.0).advance(3)
    early = iteration.solution()
    kept = {name: getattr(early, name).clone() for name in FIELDS}
    iteration.advance()
    for name, value in kept.items():
        assert torch.equal(getattr(early, name), value)


@every_solver
def test_a_pause_has_as_many_rows_as_steps_even_if_all_are_frozen(make_solver):
    problem = TanhCell(torch.ones(2, 4, dtype=torch.float64), torch.zeros(2, 4, 4, dtype=torch.float64))
    solution = Iteration(problem, problem.z0, make_solver(max_steps=16), tol=1e-3).advance(12).solution()
    assert (solution.steps < 12).all()
    assert len(solution.trajectory) == len(solution.residuals) == len(solution.residual_norms) == 12


@every_solver
def test_steps_beyond_the_limit_are_not_taken(make_solver):
    problem = TanhCell.random(2, 4, 0.9)
    f = Counting(problem)
    iteration = Iteration(f, problem.z0, make_solver(max_steps=3), tol=0.0).advance(10).advance()
    assert (iteration.step, f.calls) == (3, 4)
    assert iteration.solution().trajectory.shape[0] == 3


def test_a_solution_before_the_first_step_is_an_error():
    problem = TanhCell.random(2, 4, 0.9)
    with pytest.raises(RuntimeError, match="advance"):
        Iteration(problem, problem.z0, Picard()).solution()


@every_solver
@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("tol", [1e-5, 0.1], ids=["all moving", "some frozen"])
def test_a_rebase_to_the_same_f_changes_nothing(make_solver, at, tol):
    problem = TanhCell.random(3, 10, 1.2)
    whole = fixed_point(problem, problem.z0, make_solver(max_steps=8), tol=tol)
    rebased = Iteration(problem, problem.z0, make_solver(max_steps=8), tol=tol).advance(at).rebase(problem).advance()
    assert_same(rebased.solution(), whole, 1e-12)


@every_solver
def test_a_rebase_costs_one_evaluation(make_solver):
    problem = TanhCell.random(2, 4, 1.2)
    iteration = Iteration(problem, problem.z0, make_solver(max_steps=5), tol=0.0).advance(2)
    f = Counting(problem)
    iteration.rebase(f)
    assert (f.calls, iteration.evaluations) == (1, 4)


@every_solver
@pytest.mark.parametrize("at", [1, 7])
def test_a_rebase_leads_to_the_fixed_point_of_the_new_f(make_solver, at):
    old = Linear.random(3, (6,), 0.5, symmetric=True)
    new = old.driven_by(old.u.flip(0) + 1)
    iteration = Iteration(old, old.z0, make_solver(max_steps=75), tol=1e-11).advance(at)
    solution = iteration.rebase(new).advance().solution().require_converged()
    assert_close(solution.value, new.fixed_point, rtol=0, atol=1e-9)


@every_solver
def test_a_converged_sample_continues_when_f_changes(make_solver):
    """CONVERGED is a claim about the f at hand: after a rebase the old claim does not hold."""
    old = Linear.random(2, (4,), 0.5, symmetric=True)
    new = old.driven_by(old.u + 1)
    iteration = Iteration(old, old.z0, make_solver(max_steps=110), tol=1e-8).advance(55)
    assert iteration.solution().converged.all()
    solution = iteration.rebase(new).advance().solution()
    assert (solution.status == Status.CONVERGED).all()
    assert_close(solution.value, new.fixed_point, rtol=0, atol=1e-6)
    assert (solution.lowest_step > 55).all()
    assert torch.equal(solution.trajectory[solution.lowest_step - 1, torch.arange(2)], solution.value)
