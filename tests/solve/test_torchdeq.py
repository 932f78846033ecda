"""torchdeq, an independent implementation, finds the same fixed points."""

import warnings

import pytest
from torch.testing import assert_close

from robustdeq import Anderson, Broyden, fixed_point
from tests.problems import Linear, TanhCell


@pytest.fixture(scope="module")
def torchdeq_solver():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchdeq")
        from torchdeq.solver import get_solver

        return get_solver


@pytest.mark.parametrize(("name", "ours"), [("broyden", Broyden), ("anderson", Anderson)])
@pytest.mark.parametrize(
    "problem",
    [TanhCell.random(3, 8, 0.9), Linear.random(3, (2, 3, 2), 0.8, symmetric=True)],
    ids=["tanh", "linear maps"],
)
def test_torchdeq_agrees_at_convergence(torchdeq_solver, name, ours, problem):
    theirs, _, info = torchdeq_solver(name)(problem, problem.z0, max_iter=300, tol=1e-9, stop_mode="rel")
    assert info["rel_lowest"].max() < 1e-8
    value = fixed_point(problem, problem.z0, ours(max_steps=100), tol=1e-10).require_converged().value
    assert_close(theirs.reshape(value.shape), value, rtol=0, atol=1e-6)


def test_torchdeqs_broyden_takes_the_same_steps(torchdeq_solver):
    problem = TanhCell.random(1, 8, 1.1)
    _, states, _ = torchdeq_solver("broyden")(
        problem, problem.z0, max_iter=6, tol=1e-12, stop_mode="rel", indexing=[1, 2, 3, 4, 5, 6]
    )
    ours = fixed_point(problem, problem.z0, Broyden(max_steps=6), tol=0.0).trajectory
    assert len(states) >= 5  # it leaves out the last one asked for
    for t, state in enumerate(states):
        assert_close(state.reshape(ours[t].shape), ours[t], rtol=0, atol=1e-10)
