"""The numbers of one undefended solve, as several files store them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import robustdeq as rd

from .cases import Digest


@dataclass(frozen=True, eq=False)
class Solve:
    """Everything the files hold of `model` on `x`."""

    states: Digest
    final9: Digest
    logits: Tensor
    """(N + 1, B, C): the head at every state, then after the unrolling."""
    entropy: Tensor
    solution: rd.Solution


@torch.no_grad()
def undefended(model: rd.MDEQ, x: Tensor) -> Solve:
    """Through both doors, the trajectory and the forward pass, which must tell the same story."""
    trajectory = model.trajectory(x)
    forward = model.run(x, record=True)
    solution = forward.state.solution
    torch.testing.assert_close(solution.trajectory, trajectory.states, rtol=0, atol=0)
    torch.testing.assert_close(solution.residuals, trajectory.residual, rtol=0, atol=0)
    assert solution.lowest_step.equal(trajectory.lowest_step)
    assert solution.steps.equal(trajectory.steps)
    assert solution.status.equal(trajectory.status)
    final = torch.distributions.Categorical(logits=forward.logits).entropy()
    return Solve(
        states=Digest.of_state(trajectory.states, forward.f),
        final9=Digest.of_state(forward.y, forward.f),
        logits=torch.cat([trajectory.logits, forward.logits[None]]),
        entropy=torch.cat([trajectory.entropy, final[None]]),
        solution=solution,
    )


def of_batch(per_sample: Tensor) -> Tensor:
    """The one value that a batch-coupled solve reports for every sample (last axis)."""
    assert per_sample.eq(per_sample[..., :1]).all()
    return per_sample[..., 0]
