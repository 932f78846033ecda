"""At a tightly solved fixed point of a contraction every good policy has the exact implicit gradient."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Anderson, Broyden, Implicit, Neumann, OneStep, Phantom, Picard, SharedInverse, ThroughSolver
from tests.conformance.solvers import every_solver
from tests.problems import Linear, TanhCell, generator
from tests.solve.policies import equilibrium, finite_differences, gradient

EXACT = {
    "implicit": Implicit(solver=Broyden(max_steps=40), tol=1e-13),
    "implicit, anderson": Implicit(solver=Anderson(max_steps=200), tol=1e-12),
    "implicit, picard": Implicit(solver=Picard(max_steps=300), tol=1e-12),
    "through the solver": ThroughSolver(),
    "phantom": Phantom(steps=100, damping=0.5),
    "phantom, undamped": Phantom(steps=50, damping=1.0),
    "neumann": Neumann(steps=100, damping=0.5),
    "neumann, undamped": Neumann(steps=50, damping=1.0),
}
EXACT_POLICY = pytest.mark.parametrize("policy", EXACT.values(), ids=EXACT.keys())
SHAPES = pytest.mark.parametrize("latent", [(6,), (2, 3, 1)], ids=["vector", "maps"])


def weights(problem):
    return torch.randn(problem.u.shape, dtype=torch.float64, generator=generator(11))


@EXACT_POLICY
@SHAPES
def test_policies_are_exact_on_a_linear_map(policy, latent):
    problem = Linear.random(3, latent, 0.5, symmetric=True)
    c = weights(problem)
    # differentiating the solver converges more slowly than the solver itself: it must not stop early
    solver = Picard(max_steps=60) if isinstance(policy, ThroughSolver) else None
    assert_close(gradient(policy, problem, c, solver=solver), problem.gradient(c), rtol=0, atol=1e-8)


@EXACT_POLICY
def test_policies_are_exact_on_the_tanh_cell(policy):
    problem = TanhCell.random(3, 5, 0.5)
    c = weights(problem)
    z = equilibrium(Phantom(steps=60, damping=1.0), problem, problem.u)
    solver = Picard(max_steps=60) if isinstance(policy, ThroughSolver) else None
    assert_close(gradient(policy, problem, c, solver=solver), problem.gradient(z, c), rtol=0, atol=1e-8)


def test_the_closed_form_of_the_tanh_cell_is_the_finite_difference():
    problem = TanhCell.random(2, 4, 0.5)
    c = weights(problem)
    policy = Phantom(steps=60, damping=1.0)
    z = equilibrium(policy, problem, problem.u)
    with torch.no_grad():
        numeric = finite_differences(lambda u: (c * equilibrium(policy, problem, u)).sum(), problem.u)
    assert_close(problem.gradient(z, c), numeric, rtol=0, atol=1e-8)


@every_solver
def test_the_gradient_through_any_converged_solver_is_exact(make_solver):
    problem = TanhCell.random(2, 4, 0.7)
    c = weights(problem)
    z = equilibrium(Phantom(steps=80, damping=1.0), problem, problem.u)
    result = gradient(ThroughSolver(), problem, c, solver=make_solver(max_steps=60), tol=1e-11)
    assert_close(result, problem.gradient(z, c), rtol=0, atol=1e-5)


def test_the_shared_inverse_is_close_once_broyden_has_converged():
    """B is exact on the directions it has seen only, so -B^T is near the adjoint, not equal to it."""
    problem = Linear.random(4, (3,), 0.8, symmetric=True, seed=2)
    c = weights(problem)
    exact = problem.gradient(c)
    error, one_step = (
        (gradient(policy, problem, c, solver=Broyden(max_steps=6), tol=1e-10) - exact).norm(dim=1)
        for policy in (SharedInverse(), OneStep())
    )
    assert (error < 0.7 * one_step).all()


def test_the_shared_inverse_is_exact_in_one_dimension():
    problem = Linear.random(4, (1,), 0.8, seed=2)
    c = weights(problem)
    assert_close(
        gradient(SharedInverse(), problem, c, solver=Broyden(max_steps=2)), problem.gradient(c), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("policy", [Phantom, Neumann])
def test_a_longer_series_is_closer(policy):
    problem = Linear.random(3, (5,), 0.8, symmetric=True)
    c = weights(problem)
    errors = [(gradient(policy(steps=k), problem, c) - problem.gradient(c)).norm().item() for k in (0, 5, 20, 80)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 * errors[0]


def test_the_value_does_not_depend_on_the_policy_at_a_fixed_point():
    problem = TanhCell.random(3, 5, 0.8)
    values = [equilibrium(p, problem, problem.u) for p in (*EXACT.values(), OneStep(), SharedInverse())]
    for value in values[1:]:
        assert_close(value, values[0], rtol=0, atol=1e-11)
