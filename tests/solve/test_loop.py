"""The loop's bookkeeping with a scripted solver; with f(z) = z + |z| the residual of z is |z|."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import NotConvergedError, Status, fixed_point
from tests.stubs import Counting, Scripted, column, own_size


def solve(script, *, f=own_size, tol=0.1, start=1.0, **options):
    solver = Scripted(max_steps=len(script), script=script, criterion="absolute", **options)
    return fixed_point(f, torch.full_like(script[0], start), solver, tol=tol)


def test_a_step_limit_is_reported():
    solution = solve(column(4, 3, 2))
    assert solution.status.tolist() == [Status.STEP_LIMIT]
    assert solution.steps.tolist() == [3]


def test_a_sample_converges_below_the_tolerance_and_not_at_it():
    assert solve(column(4, 0.5, 2), tol=0.5).status.tolist() == [Status.STEP_LIMIT]
    solution = solve(column(4, 0.49, 2), tol=0.5)
    assert solution.status.tolist() == [Status.CONVERGED]
    assert solution.steps.tolist() == [2]


def test_a_sample_diverges_above_a_multiple_of_its_first_residual_and_not_at_it():
    assert solve(column(2, 20, 1), divergence=10.0).status.tolist() == [Status.STEP_LIMIT]
    solution = solve(column(2, 21, 1), divergence=10.0)
    assert solution.status.tolist() == [Status.DIVERGED]
    assert solution.steps.tolist() == [2]
    assert solution.value.item() == 2


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_sample_breaks_on_a_non_finite_iterate_and_keeps_its_best(bad):
    solution = solve(column(4, 3, bad, 1))
    assert solution.status.tolist() == [Status.NON_FINITE]
    assert solution.steps.tolist() == [3]
    assert solution.lowest_step.tolist() == [2]
    assert solution.value.item() == solution.residual.item() == 3
    assert not solution.last.isfinite().any()


def test_a_sample_breaks_where_f_is_non_finite_at_a_finite_iterate():
    solution = solve(column(4, 3, 2), f=lambda z: own_size(z) / (z != 3).to(z.dtype))
    assert solution.status.tolist() == [Status.NON_FINITE]
    assert solution.value.item() == 4
    assert solution.last.item() == 3


def test_a_sample_that_is_never_finite_has_its_first_iterate_as_its_result():
    solution = solve(column(torch.nan, 1, 1))
    assert solution.status.tolist() == [Status.NON_FINITE]
    assert (solution.steps.tolist(), solution.lowest_step.tolist()) == ([1], [1])
    assert solution.value.isnan().all()
    assert solution.residual.isinf().all()


@pytest.mark.parametrize("criterion", ["relative", "absolute"])
def test_an_iterate_whose_norm_overflows_is_never_the_result(criterion):
    """At 3e19 in float32 ||f(z)|| is infinite and ||f(z) - z|| is not: the relative residual would be 0."""
    script = torch.tensor([1.0, 3e19, 1.0])[:, None, None].repeat(1, 1, 4)
    solver = Scripted(max_steps=3, script=script, criterion=criterion)
    solution = fixed_point(lambda z: 1.01 * z, torch.ones(1, 4), solver, tol=1e-3)
    assert solution.status.tolist() == [Status.NON_FINITE]
    assert solution.lowest_step.tolist() == [1]
    assert torch.equal(solution.value, script[0])


def test_the_value_is_the_lowest_residual_iterate_and_the_first_if_tied():
    solution = solve(column(4, 2, 3, -2, 5))
    assert solution.value.item() == 2
    assert solution.last.item() == 5
    assert solution.lowest_step.tolist() == [2]
    assert solution.residual.tolist() == [2]
    assert solution.residuals.flatten().tolist() == [4, 2, 3, 2, 5]


def test_the_initial_state_is_no_candidate_for_the_value():
    assert solve(column(4, 3), start=0.5).value.item() == 3


def test_each_sample_has_its_own_outcome():
    script = torch.cat([column(4, 3, 2, 1), column(4, 0.01, 9, 9), column(4, 1, 9e9, 9), column(4, 3, 2, torch.nan)], 1)
    solution = solve(script)
    assert solution.status.tolist() == [Status.STEP_LIMIT, Status.CONVERGED, Status.DIVERGED, Status.NON_FINITE]
    assert solution.steps.tolist() == [4, 2, 3, 4]
    assert solution.lowest_step.tolist() == [4, 2, 2, 3]
    assert solution.value.flatten().tolist() == [1, 0.01, 1, 2]
    assert solution.converged.tolist() == [False, True, False, False]


def test_a_frozen_sample_repeats_while_others_continue():
    script = torch.cat([column(4, 3, 2, 1), column(4, 0.01, 9, 9), column(4, torch.nan, 9, 9)], 1)
    trajectory = solve(script).trajectory[:, :, 0]
    assert_close(
        trajectory.T,
        torch.tensor([[4, 3, 2, 1], [4, 0.01, 0.01, 0.01], [4, *[torch.nan] * 3]], dtype=torch.float64),
        equal_nan=True,
    )


def test_once_all_are_frozen_f_is_not_called_and_the_rows_are_still_n():
    f = Counting(own_size)
    solution = solve(torch.cat([column(4, 0.01, 7, 7, 7), column(0.02, 7, 7, 7, 7)], 1), f=f)
    assert f.calls == solution.evaluations == 3
    assert solution.trajectory.shape == (5, 2, 1)
    assert solution.residuals.shape == solution.residual_norms.shape == (5, 2)
    assert solution.trajectory[:, 0, 0].tolist() == [4, *[0.01] * 4]
    assert solution.residuals[:, 1].tolist() == [0.02] * 5
    assert solution.steps.tolist() == [2, 1]


def test_the_trajectory_is_kept_only_with_record():
    solver = Scripted(max_steps=2, script=column(4, 3), criterion="absolute")
    solution = fixed_point(own_size, torch.ones(1, 1, dtype=torch.float64), solver, record=False)
    assert solution.trajectory is None
    assert solution.value.item() == 3


def test_require_converged_returns_a_converged_solution():
    solution = solve(column(4, 0.01))
    assert solution.require_converged() is solution


def test_require_converged_names_the_samples_and_their_status():
    script = torch.cat([column(4, 3), column(4, 0.01), column(4, torch.nan)], 1)
    with pytest.raises(NotConvergedError) as error:
        solve(script).require_converged()
    message = str(error.value)
    for part in ("2 of 3", "indices 0, 2", "1 step limit", "1 non finite", "1 converged", "max_steps", "tol"):
        assert part in message


def test_require_converged_shortens_a_long_list():
    script = column(4, 3).repeat(1, 30, 1)
    with pytest.raises(NotConvergedError, match=r"30 of 30 .*8, 9, \.\.\.\)"):
        solve(script).require_converged()
