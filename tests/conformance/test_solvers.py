"""What the loop relies on in every solver."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from robustdeq import fixed_point
from tests.conformance.solvers import every_solver
from tests.problems import Linear, TanhCell
from tests.stubs import Counting


@pytest.fixture
def cell():
    return TanhCell.random(3, 6, 1.2)


def run(solver, f, z, steps, rows=slice(None)):
    """The contract by hand: (iterates, memory) after `steps` steps on the selected rows."""
    z = z[rows]
    memory = solver.init(z, f(z) - z)
    iterates = []
    for _ in range(steps):
        z, memory = solver.propose(memory)
        memory = solver.observe(memory, z, f(z) - z)
        iterates.append(z)
    return torch.stack(iterates), memory


@every_solver
def test_the_object_is_its_options(make_solver):
    solver = make_solver(max_steps=3)
    changed = dataclasses.replace(solver, max_steps=5)
    assert (solver.max_steps, changed.max_steps) == (3, 5)
    assert dataclasses.replace(changed, max_steps=3) == solver
    assert hash(dataclasses.replace(changed, max_steps=3)) == hash(solver)
    assert "max_steps=3" in repr(solver)
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver.max_steps = 4


@every_solver
def test_options_are_keywords(make_solver):
    with pytest.raises(TypeError):
        make_solver(3)


@every_solver
@pytest.mark.parametrize("bad", [{"max_steps": 0}, {"divergence": 1.0}, {"divergence": float("nan")}])
def test_bad_options_are_value_errors(make_solver, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make_solver(**bad)


@every_solver
def test_the_loop_adds_nothing_to_the_iterates(make_solver, cell):
    solver = make_solver(max_steps=6)
    by_hand, _ = run(solver, cell, cell.z0, 6)
    assert_close(fixed_point(cell, cell.z0, solver, tol=0.0).trajectory, by_hand, rtol=0, atol=1e-14)


@every_solver
def test_rows_of_the_memory_do_not_mix(make_solver, cell):
    solver = make_solver(max_steps=6)
    together, _ = run(solver, cell, cell.z0, 6)
    for i in range(3):
        alone, _ = run(solver, cell[[i]], cell.z0, 6, [i])
        assert_close(together[:, [i]], alone, rtol=0, atol=1e-12)


@every_solver
def test_the_first_step_follows_g(make_solver, cell):
    solver = make_solver(max_steps=1)
    first = fixed_point(cell, cell.z0, solver).trajectory[0]
    weight = getattr(solver, "damping", getattr(solver, "mixing", 1.0))
    assert_close(first, weight * cell(cell.z0), rtol=0, atol=1e-15)


@every_solver
def test_n_steps_cost_n_plus_one_evaluations(make_solver, cell):
    for n in (1, 2, 7):
        f = Counting(cell)
        solution = fixed_point(f, cell.z0, make_solver(max_steps=n), tol=0.0)
        assert solution.evaluations == f.calls == n + 1


@every_solver
def test_a_memory_is_a_snapshot(make_solver, cell):
    """Taking a step again from a remembered memory gives the same step, however far the solve has gone since."""
    solver = make_solver(max_steps=12)
    _, memory = run(solver, cell, cell.z0, 3)
    before, _ = solver.propose(memory)
    before = before.clone()
    z, later = solver.propose(memory)
    for _ in range(7):
        later = solver.observe(later, z, cell(z) - z)
        z, later = solver.propose(later)
    again, _ = solver.propose(memory)
    assert torch.equal(again, before)


@every_solver
def test_a_step_taken_again_with_another_f_leaves_no_trace_of_the_first_try(make_solver, cell):
    solver = make_solver(max_steps=12)
    other = TanhCell.random(3, 6, 1.2, seed=9)

    def branch(memory):
        z, memory = solver.propose(memory)
        memory = solver.observe(memory, z, other(z) - z)
        return solver.propose(memory)[0].clone()

    z3, fresh = run(solver, cell, cell.z0, 3)
    expected = branch(solver.rebase(fresh, other(z3[-1]) - z3[-1]))

    z3, memory = run(solver, cell, cell.z0, 3)
    z, tried = solver.propose(memory)
    tried = solver.observe(tried, z, cell(z) - z)
    solver.propose(tried)
    assert_close(branch(solver.rebase(memory, other(z3[-1]) - z3[-1])), expected, rtol=0, atol=0)


@every_solver
def test_a_start_at_the_fixed_point_stays_there(make_solver):
    problem = Linear.random(2, (3,), 0.5)
    solution = fixed_point(problem, problem.fixed_point, make_solver(max_steps=4), tol=1e-10)
    assert solution.converged.all()
    assert_close(solution.value, problem.fixed_point, rtol=0, atol=1e-13)


@every_solver
def test_it_works_under_no_grad_and_inference_mode_and_leaves_no_graph(make_solver):
    problem = Linear.random(2, (3,), 0.5)
    problem.A.requires_grad_()
    plain = fixed_point(problem, problem.z0, make_solver(max_steps=4))
    with torch.no_grad():
        quiet = fixed_point(problem, problem.z0, make_solver(max_steps=4))
    with torch.inference_mode():
        inference = fixed_point(problem, problem.z0, make_solver(max_steps=4))
    assert plain.value.requires_grad
    assert not quiet.value.requires_grad
    assert_close(quiet.value, plain.value.detach(), rtol=0, atol=1e-13)
    assert_close(inference.value, quiet.value, rtol=0, atol=1e-13)
