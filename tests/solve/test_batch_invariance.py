"""Solves are batch-independent: other samples, their order and their failures do not matter."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import robustdeq as rd
from tests.conformance.solvers import every_solver
from tests.problems import Problem, TanhCell, generator, troubled

SELECTIONS = [[0], [1], [2], [3], [4], [4, 3, 2, 1, 0], [1, 1, 3]]
FIELDS = ("trajectory", "value", "last", "residual", "residuals", "residual_norms", "steps", "lowest_step", "status")


@dataclass(frozen=True, eq=False)
class TinyMDEQ(Problem):
    """MDEQ's own f, for images u, plus `push` times z: a large push makes a sample diverge."""

    push: Tensor
    MODEL = None

    def bound(self):
        return TinyMDEQ.MODEL.begin(self.u)

    @property
    def z0(self):
        return self.bound()[1]

    def __call__(self, z):
        return self.bound()[0](z) + self.push[:, None] * z


@pytest.fixture(scope="module")
def mdeq():
    """Five images, one of them NaN, one that diverges under plain iteration."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.MDEQ(
            num_classes=3, channels=(4, 8), head_channels=(2, 4), final_channels=6, groups=2, expansion=2, downsample=0
        )
        model = model.double().eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.ndim == 1 and "dynamics" in name:  # GroupNorm's affine parameters
                    p.add_(0.3 * torch.randn_like(p))
                elif p.ndim == 4 and "weight_" not in name:
                    p.mul_(20)
        TinyMDEQ.MODEL = model.requires_grad_(False)
        u = torch.rand(5, 3, 8, 8, dtype=torch.float64, generator=generator())
        u[3, 0, 2, 2] = torch.nan
        yield TinyMDEQ(u, torch.tensor([0.0, 0.0, 40.0, 0.0, 0.0], dtype=torch.float64))
        TinyMDEQ.MODEL = None


def assert_every_selection_repeats(problem, solver, tol, selections=SELECTIONS):
    whole = rd.fixed_point(problem, problem.z0, solver, tol=tol)
    for rows in selections:
        part = problem[rows]
        alone = rd.fixed_point(part, part.z0, solver, tol=tol)
        for name in FIELDS:
            a, b = getattr(alone, name), getattr(whole, name)
            b = b[:, rows] if name in ("trajectory", "residuals", "residual_norms") else b[rows]
            scale = b.abs().nan_to_num().amax().clamp_min(1) if name in ("trajectory", "last", "residual_norms") else 1
            assert_close(a / scale, b / scale, rtol=0, atol=1e-10, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")
    return whole


@every_solver
@pytest.mark.parametrize("gain", [0.9, 3.0], ids=["contraction", "chaotic"])
def test_the_tanh_cell_is_solved_batch_independently(make_solver, gain):
    problem = TanhCell.random(5, 8, gain)
    assert_every_selection_repeats(problem, make_solver(max_steps=8), 1e-3)


@every_solver
def test_samples_that_diverge_or_break_do_not_change_the_others(make_solver):
    whole = assert_every_selection_repeats(troubled(), make_solver(max_steps=20), 1e-7)
    assert {int(s) for s in whole.status} >= {rd.Status.DIVERGED, rd.Status.NON_FINITE, rd.Status.CONVERGED}


@every_solver
def test_an_mdeq_is_solved_batch_independently(make_solver, mdeq):
    whole = assert_every_selection_repeats(mdeq, make_solver(max_steps=8, criterion="absolute"), 1e-3, SELECTIONS[::2])
    assert whole.status[3] == rd.Status.NON_FINITE
    moved = (whole.trajectory[-1] - whole.trajectory[0]).norm(dim=1) / whole.trajectory[0].norm(dim=1)
    assert moved[[0, 1, 4]].min() > 0.05, "the dynamics are trivial: the test would not notice a coupling"


def test_an_mdeq_sample_that_diverges_is_reported(mdeq):
    solution = rd.fixed_point(mdeq, mdeq.z0, rd.Picard(max_steps=8, criterion="absolute"), tol=1e-3)
    assert solution.status[2] == rd.Status.DIVERGED
    assert torch.isfinite(solution.value[2]).all()
