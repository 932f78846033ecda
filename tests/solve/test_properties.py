"""Properties of solves of any contraction, for all sizes, precisions and batches."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from robustdeq import fixed_point
from tests.conformance.solvers import SOLVERS
from tests.problems import Linear

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3}

few = settings(deadline=None, max_examples=15, derandomize=True, database=None)
latents = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)
radii = st.floats(0.01, 0.7)
solvers = st.sampled_from(list(SOLVERS.values()))
problems = st.builds(
    lambda batch, latent, radius, dtype, seed: (
        Linear.random(batch, latent, radius, dtype=dtype, seed=seed, symmetric=True),
        radius,
        TOLERANCES[dtype],
    ),
    st.integers(1, 5),
    latents,
    radii,
    st.sampled_from(list(TOLERANCES)),
    st.integers(0, 10_000),
)


def norms(z):
    return torch.linalg.vector_norm(z.reshape(len(z), -1).double(), dim=1)


@few
@given(problems, solvers)
def test_a_converged_value_has_a_small_residual_and_is_as_near_the_fixed_point_as_that_implies(case, make_solver):
    """A has norm `radius`, so ||z - z*|| <= ||f(z) - z|| / (1 - radius)."""
    problem, radius, tol = case
    solution = fixed_point(problem, problem.z0, make_solver(max_steps=120), tol=tol).require_converged()
    fz = problem(solution.value)
    rounding = 20 * torch.finfo(fz.dtype).eps
    residual = norms(fz - solution.value) / norms(fz)
    assert (residual < tol + rounding).all()
    assert_close(residual, solution.residual.double(), rtol=0, atol=rounding)
    exact = Linear(problem.u.double(), problem.A.double()).fixed_point
    assert (norms(solution.value.double() - exact) <= (tol + rounding) * norms(fz) / (1 - radius)).all()


@few
@given(problems, solvers, st.randoms(use_true_random=False))
def test_permuting_the_batch_permutes_the_result(case, make_solver, random):
    problem, _, tol = case
    problem = Linear(problem.u.double(), problem.A.double())
    order = list(range(len(problem)))
    random.shuffle(order)
    shuffled = problem[order]
    a = fixed_point(problem, problem.z0, make_solver(max_steps=12), tol=tol)
    b = fixed_point(shuffled, shuffled.z0, make_solver(max_steps=12), tol=tol)
    assert_close(b.trajectory, a.trajectory[:, order], rtol=0, atol=1e-10)
    assert_close(b.value, a.value[order], rtol=0, atol=1e-10)
    assert b.status.tolist() == a.status[order].tolist()
    assert b.steps.tolist() == a.steps[order].tolist()
