"""Gradient policies under no_grad, and in batches with samples that fail."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import Broyden, Implicit, Neumann, OneStep, Phantom, SharedInverse, ThroughSolver, fixed_point
from tests.problems import BREAKING, DIVERGING, HEALTHY, NAN, QUICK, TanhCell, troubled
from tests.solve.policies import equilibrium, gradient, solved

POLICIES = [Phantom(), OneStep(), Implicit(), Neumann(), SharedInverse(), ThroughSolver()]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)


@every_policy
def test_the_value_is_the_same_without_gradients(policy):
    cell = TanhCell.random(3, 5, 1.1)
    u = cell.u.clone().requires_grad_()
    expected = equilibrium(policy, cell, u, tol=1e-3)
    assert expected.requires_grad
    with torch.no_grad():
        quiet = equilibrium(policy, cell, u, tol=1e-3)
    with torch.inference_mode():
        inference = equilibrium(policy, cell, u, tol=1e-3)
    assert not quiet.requires_grad
    assert_close(quiet, expected.detach(), rtol=0, atol=1e-13)
    assert_close(inference, quiet, rtol=0, atol=1e-13)


@every_policy
def test_no_gradient_is_left_on_what_f_depends_on(policy):
    cell = TanhCell.random(3, 5, 1.1)
    cell.W.requires_grad_()
    gradient(policy, cell, torch.ones_like(cell.u), tol=1e-3)
    assert cell.W.grad is None


@every_policy
def test_a_gradient_reaches_the_parameters_too(policy):
    cell = TanhCell.random(3, 5, 1.1)
    cell.W.requires_grad_()
    equilibrium(policy, cell, cell.u, tol=1e-3).sum().backward()
    assert cell.W.grad.isfinite().all()
    assert (cell.W.grad.flatten(1).norm(dim=1) > 0).all()


@every_policy
def test_gradients_are_batch_independent(policy):
    cell = TanhCell.random(4, 5, 1.1)
    c = torch.ones_like(cell.u)
    together = gradient(policy, cell, c, solver=Broyden(max_steps=6), tol=1e-3)
    for rows in ([0], [2], [3, 1]):
        alone = gradient(policy, cell[rows], c[rows], solver=Broyden(max_steps=6), tol=1e-3)
        assert_close(together[rows], alone, rtol=0, atol=1e-10)


@every_policy
def test_samples_that_fail_do_not_change_the_other_gradients(policy):
    problem = troubled()
    good = [HEALTHY, QUICK]
    options = {"solver": Broyden(max_steps=8), "tol": 1e-5}
    c = torch.ones_like(problem.u)
    result = gradient(policy, problem, c, **options)
    assert result[good].isfinite().all()
    assert (result[good].norm(dim=1) > 0).all()
    assert_close(result[good], gradient(policy, problem[good], c[good], **options), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("policy", "sample"),
    # not through the solver if a step breaks: autograd multiplies its zero gradient by f's derivative there, a NaN
    [(p, s) for p in POLICIES for s in (DIVERGING, BREAKING) if (type(p), s) != (ThroughSolver, BREAKING)],
    ids=lambda v: {DIVERGING: "diverging", BREAKING: "breaking"}.get(v) if isinstance(v, int) else type(v).__name__,
)
def test_a_sample_that_fails_later_has_the_finite_gradient_of_its_best_state(policy, sample):
    """Its value is an iterate from before the failure, so the failed steps have no part in the gradient."""
    problem = troubled()[[HEALTHY, sample]]  # the healthy one keeps the solve going after the failure
    options = {"solver": Broyden(max_steps=6), "tol": 1e-7}
    failed = fixed_point(problem, problem.z0, **options)
    kept = int(failed.lowest_step[1])
    assert kept < int(failed.steps[1]) < int(failed.steps[0])
    c = torch.ones_like(problem.u)
    # without unrolling, so that y itself stays out of the trap
    policy = Phantom(steps=0) if isinstance(policy, Phantom) else policy
    expected = gradient(policy, problem[[1]], c[[1]], solver=Broyden(max_steps=kept), tol=1e-7)
    assert expected.isfinite().all()
    assert_close(gradient(policy, problem, c, **options)[[1]], expected, rtol=0, atol=1e-10)


def test_a_nan_sample_is_nan_in_y():
    problem = troubled()
    state = solved(problem, problem.z0, Broyden(max_steps=4), 1e-5)
    for policy in POLICIES:
        assert policy.connect(problem, state)[NAN].isnan().any()
        assert policy.connect(problem, state)[[HEALTHY, QUICK]].isfinite().all()
