"""Each policy against its own formula, away from the fixed point, with explicit matrices."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Broyden, Implicit, Neumann, OneStep, Phantom, Picard, SharedInverse, Solution, fixed_point
from robustdeq.solve import SolvedState, unroll
from tests.problems import TanhCell, generator
from tests.solve.dense import dense_broyden
from tests.solve.policies import gradient, solved

STEPS = 3


@pytest.fixture
def cell():
    return TanhCell.random(3, 5, 1.1)


@pytest.fixture
def c():
    return torch.randn(3, 5, dtype=torch.float64, generator=generator(11))


def early(**options):
    return {"solver": Broyden(max_steps=STEPS), "tol": 0.0} | options


def reached(cell):
    """The state that `early` reaches, its Jacobian, and df/du (a diagonal)."""
    z = fixed_point(cell, cell.z0, Broyden(max_steps=STEPS), tol=0.0).value
    return z, cell.jacobian(z), 1 - cell(z) ** 2


def test_one_step_is_one_application_of_f(cell, c):
    _, _, drive = reached(cell)
    assert_close(gradient(OneStep(), cell, c, **early()), drive * c, rtol=0, atol=1e-12)


def test_one_step_is_phantom_without_unrolling(cell, c):
    assert torch.equal(gradient(OneStep(), cell, c, **early()), gradient(Phantom(steps=0), cell, c, **early()))


@pytest.mark.parametrize("damping", [0.5, 0.3, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_neumann_is_its_truncated_series(cell, c, steps, damping):
    _, J, drive = reached(cell)
    w = c
    for _ in range(steps):
        w = c + (1 - damping) * w + damping * (J.mT @ w[..., None])[..., 0]
    expected = drive * damping * w
    assert_close(gradient(Neumann(steps=steps, damping=damping), cell, c, **early()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("damping", [0.5, 0.3, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_phantom_is_the_unrolling_written_by_hand(cell, c, steps, damping):
    z, _, _ = reached(cell)
    u = cell.u.clone().requires_grad_()
    f = cell.driven_by(u)
    y = f(z)
    for _ in range(steps):
        y = (1 - damping) * y + damping * f(y)
    (expected,) = torch.autograd.grad((c * y).sum(), u)
    policy = Phantom(steps=steps, damping=damping)
    assert_close(gradient(policy, cell, c, **early()), expected, rtol=0, atol=1e-12)
    assert_close(policy.connect(cell, solved(cell, cell.z0, Broyden(max_steps=STEPS), 0.0)), y.detach())


def test_unroll_weighs_f_by_the_damping(cell):
    y = cell.u
    assert_close(unroll(cell, y, 1, 0.25), 0.75 * y + 0.25 * cell(y))
    assert torch.equal(unroll(cell, y, 0, 0.25), y)


def test_phantom_passes_gradcheck_where_the_state_is_a_constant(cell):
    state = solved(cell, cell.z0, Broyden(max_steps=STEPS), 0.0)
    u = cell.u.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda u: Phantom(steps=3).connect(cell.driven_by(u), state), u)


def test_implicit_solves_the_adjoint_equation_at_the_state_it_is_given(cell, c):
    cell = TanhCell(cell.u, 0.7 * cell.W)
    _, J, drive = reached(cell)
    adjoint = torch.linalg.solve(torch.eye(5, dtype=torch.float64) - J.mT, c)
    policy = Implicit(solver=Broyden(max_steps=30), tol=1e-13)
    assert_close(gradient(policy, cell, c, **early()), drive * adjoint, rtol=0, atol=1e-9)


def test_implicit_shows_its_backward_solve(cell, c):
    seen: list[Solution] = []
    gradient(Implicit(solver=Picard(max_steps=4), tol=0.0, on_solution=seen.append), cell, c, **early())
    _, J, _ = reached(cell)
    (solution,) = seen
    assert solution.evaluations == 5
    u = c
    for _ in range(3):
        u = c + (J.mT @ u[..., None])[..., 0]
    assert_close(solution.last, u, rtol=0, atol=1e-12)


def test_implicit_couples_its_backward_pass_if_the_forward_pass_was(cell, c):
    seen: list[Solution] = []
    policy = Implicit(on_solution=seen.append)
    for coupled in (False, True):
        solution = fixed_point(cell, cell.z0, Broyden(max_steps=STEPS))
        state = SolvedState(z=solution.value, step=solution.lowest_step, solution=solution, batch_coupled=coupled)
        u = cell.u.clone().requires_grad_()
        (c * policy.connect(cell.driven_by(u), state)).sum().backward()
    apart, together = (s.residuals[0] for s in seen)
    assert len(set(apart.tolist())) == 3
    assert len(set(together.tolist())) == 1


@pytest.mark.parametrize("steps", [1, 4, 11])
def test_the_shared_inverse_is_minus_b_transposed(cell, c, steps):
    solution = fixed_point(cell, cell.z0, Broyden(max_steps=steps), tol=0.0)
    _, B = dense_broyden(cell, cell.z0, steps)
    rows = torch.arange(3)
    adjoint = -(B[solution.lowest_step - 1, rows].mT @ c[..., None])[..., 0]
    expected = (1 - cell(solution.value) ** 2) * adjoint
    result = gradient(SharedInverse(), cell, c, solver=Broyden(max_steps=steps), tol=0.0)
    assert_close(result, expected, rtol=0, atol=1e-8)


def test_the_shared_inverse_is_that_of_each_samples_own_lowest_step():
    cell = TanhCell.random(6, 5, 8.0, seed=2)
    c = torch.randn(6, 5, dtype=torch.float64, generator=generator(11))
    solver = Broyden(max_steps=7)
    solution = fixed_point(cell, cell.z0, solver, tol=0.0)
    assert len(set(solution.lowest_step.tolist())) > 1, "all samples chose the same step: the test would not notice"
    _, B = dense_broyden(cell, cell.z0, 7)
    adjoint = -(B[solution.lowest_step - 1, torch.arange(6)].mT @ c[..., None])[..., 0]
    expected = (1 - cell(solution.value) ** 2) * adjoint
    assert_close(gradient(SharedInverse(), cell, c, solver=solver, tol=0.0), expected, rtol=1e-8, atol=1e-8)


def test_the_shared_inverse_of_a_frozen_sample_ignores_the_steps_it_did_not_take():
    cell = TanhCell.random(3, 5, 0.9)
    cell.W[1] *= 0.01
    c = torch.ones(3, 5, dtype=torch.float64)
    solver = Broyden(max_steps=6)
    assert fixed_point(cell, cell.z0, solver, tol=1e-5).steps[1] < 6
    together = gradient(SharedInverse(), cell, c, solver=solver, tol=1e-5)
    alone = gradient(SharedInverse(), cell[[1]], c[[1]], solver=solver, tol=1e-5)
    assert_close(together[[1]], alone, rtol=0, atol=1e-10)


def test_the_shared_inverse_of_a_solver_that_keeps_none_is_a_clear_error(cell):
    with pytest.raises(ValueError, match=r"SharedInverse.*Broyden"):
        SharedInverse().connect(cell, solved(cell, cell.z0, Picard(), 1e-3))
