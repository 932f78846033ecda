"""Broyden's method in segments, against dense matrices."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from robustdeq.solve import Broyden, Iteration, SegmentBroyden, fixed_point

from ..problems import TanhCell


@pytest.fixture
def problem():
    return TanhCell.random(3, 5, 0.9)


def updated(B, dz, dg):
    """Broyden's good update of dense inverse estimates (B, D, D)."""
    row = torch.einsum("bi,bij->bj", dz, B)
    column = dz - torch.einsum("bij,bj->bi", B, dg)
    return B + column[:, :, None] * row[:, None] / (row * dg).sum(1)[:, None, None]


def apply(B, g):
    return torch.einsum("bij,bj->bi", B, g)


def test_the_first_segment_is_an_ordinary_solve(problem):
    segment = fixed_point(problem, problem.z0, SegmentBroyden(max_steps=5), tol=0.0)
    whole = fixed_point(problem, problem.z0, Broyden(max_steps=5), tol=0.0)
    assert_close(segment.trajectory, whole.trajectory, rtol=0, atol=1e-12)
    assert_close(segment.inverse.apply(problem.u), whole.inverse.apply(problem.u), rtol=0, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_segment_starts_with_the_corrected_history_and_then_forgets_it(problem, length):
    f, moved = problem, problem.driven_by(problem.u + 0.1)
    first = Iteration(f, f.z0, SegmentBroyden(max_steps=length), tol=0.0).advance()
    handed = (first.z + first.value) / 2  # any point will do
    second = SegmentBroyden(max_steps=3, previous=first.memory)
    ours = fixed_point(moved, handed, second, tol=0.0)

    eye = torch.eye(5, dtype=f.u.dtype).expand(3, 5, 5)
    points = [f.z0, *first.states]
    B = -eye
    for a, b in pairwise(points[:-1]):  # every factor but the last
        B = updated(B, b - a, (f(b) - b) - (f(a) - a))
    a, b = points[-2:]
    g_last, g_new = f(b) - b, moved(handed) - handed
    B = updated(B, b - a, g_last - (f(a) - a) + g_new - g_last)

    z = handed - apply(B, g_new)
    expected, last = [z], handed
    B = -eye
    for _ in range(2):
        B = updated(B, z - last, (moved(z) - z) - (moved(last) - last))
        z, last = z - apply(B, moved(z) - z), z
        expected.append(z)
    assert_close(ours.trajectory, torch.stack(expected), rtol=0, atol=1e-10)


def test_a_row_that_stopped_early_hands_on_its_own_last_step(problem):
    """Together with a slow row, a quick one hands on what it hands on alone."""
    W = problem.W.clone()
    W[1] *= 1e-3
    problem = TanhCell(problem.u, W)
    moved = problem.driven_by(problem.u + 0.1)

    def two_segments(f, g):
        first = Iteration(f, f.z0, SegmentBroyden(max_steps=5), tol=1e-6).advance()
        second = SegmentBroyden(max_steps=3, previous=first.memory)
        return first.steps, Iteration(g, first.value, second, tol=1e-6).advance().solution().trajectory

    steps, together = two_segments(problem, moved)
    assert steps[1] < 4
    assert steps[0] == 5
    for i in range(3):
        _, alone = two_segments(problem[i : i + 1], moved[i : i + 1])
        assert_close(together[:, i : i + 1], alone, rtol=0, atol=1e-10)


def test_a_vanishing_correction_is_dropped():
    """dg' = 0, here exactly: the factor has no finite size, and the segment starts from -I."""
    z0 = torch.zeros(1, 2, dtype=torch.float64)
    first = Iteration(lambda z: z / 2 + 1, z0, SegmentBroyden(max_steps=1), tol=0.0).advance()
    assert first.memory.step[1].tolist() == [[-0.5, -0.5]]
    second = SegmentBroyden(max_steps=1, previous=first.memory)
    ours = fixed_point(lambda z: z + 1, first.z, second, tol=0.0)  # g_new - g_last = 1 - 0.5
    assert ours.last.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_rebase_keeps_the_factors_of_the_segment(problem, before):
    first = Iteration(problem, problem.z0, SegmentBroyden(max_steps=2), tol=0.0).advance()
    moved = problem.driven_by(problem.u + 0.1)
    again = problem.driven_by(problem.u - 0.2)
    it = Iteration(moved, first.z, SegmentBroyden(max_steps=4, previous=first.memory), tol=0.0).advance(before)
    inverse = it.solver.inverse(it.memory)
    z = it.z
    g = again(z) - z
    it.rebase(again).advance(1)
    assert_close(it.z, z - inverse.apply(g), rtol=0, atol=1e-12)
    if before == 0:  # the handed factors serve the first proposal only
        assert it.memory.inverse.rank == 0
