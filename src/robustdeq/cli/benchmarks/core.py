"""`robustdeq bench core`: one evaluation of f, and an N-step solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from robustdeq import create_model, plain
from robustdeq.cli.benchmarks.measure import ConvolutionLog, beside_plain, peak_rate, times
from robustdeq.models import MDEQ

BATCH = {"mdeq-large": 32, "mdeq-tiny": 128}


@torch.no_grad()
def core(models: list[str], batch: int | None, rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Records of ours beside the plain implementation, seconds per image, for each model in float32."""
    peak = peak_rate(rounds, say)
    return [record for name in models for record in _one(name, batch or BATCH.get(name, 32), rounds, peak, say)]


def _one(name: str, batch: int, rounds: int, peak: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    model: MDEQ = create_model(name).eval()
    if not isinstance(model, MDEQ):
        raise ValueError(f"bench core measures MDEQ models, not {name}")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batch, model.config.in_channels, 32, 32, generator=generator)
    f, z0 = model.begin(x)
    other = plain.default_layout(model)
    slow = plain.CountedDynamics(other, other.encoder(x).contiguous())
    z = torch.randn(z0.shape, generator=generator)
    steps = model.solver.max_steps

    f(z)  # weights are computed at the first call
    with ConvolutionLog() as log:
        f(z)
    with ConvolutionLog() as direct:
        slow(z)
    macs = sum(c.macs for c in direct.calls)  # of direct convolutions; Winograd tiles take fewer

    ours_f, plain_f, convolutions = times(
        rounds,
        lambda: f(z),
        lambda: slow(z),
        lambda: [c.run() for c in log.calls],
        say=say,
        what=f"{name}: one f, batch {batch}",
    )
    model.tol = 0.0  # neither side may stop early: both take all N steps
    ours_solve, plain_solve, f_beside = times(
        rounds,
        lambda: _solve(model, x),
        lambda: plain.solve(plain.CountedDynamics(other, other.encoder(x).contiguous()), max_steps=steps, tol=0.0),
        lambda: f(z),
        say=say,
        what=f"{name}: solve, N = {steps}",
    )
    return [
        {
            "name": "f",
            "model": name,
            "batch": batch,
            **beside_plain(ours_f, plain_f, batch),
            "macs": macs / batch,
            "macs_done": sum(c.macs for c in log.calls) / batch,
            "fraction_of_peak": macs / min(ours_f) / peak,
            "fraction_of_its_convolutions": min(convolutions) / min(ours_f),
            "peak_macs_per_second": peak,
        },
        {
            "name": f"solve N={steps}",
            "model": name,
            "batch": batch,
            **beside_plain(ours_solve, plain_solve, batch),
            "cost_over_f": min(ours_solve) / ((steps + 1) * min(f_beside)),
        },
    ]


def _solve(model: MDEQ, x: torch.Tensor) -> None:
    f, z0 = model.begin(x)
    model.solve(f, z0, record=False)
