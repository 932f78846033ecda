"""`robustdeq bench core`: one evaluation of f, and an N-step solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from robustdeq import plain
from robustdeq.cli.bench.measure import Convolutions, beside_plain, model_and_images, multiply_adds, times

BATCH = {"mdeq-large": 32, "mdeq-tiny": 128}


@torch.no_grad()
def core(name: str, batch: int | None, rounds: int, peak: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Records of ours beside the plain implementation, seconds per image, in float32."""
    batch = batch or BATCH.get(name, 32)
    model, x = model_and_images(name, batch)
    f, z0 = model.begin(x)
    other = plain.default_layout(model)
    slow = plain.CountedDynamics(other, other.encoder(x).contiguous())
    z = torch.randn(z0.shape, generator=torch.Generator().manual_seed(0))
    steps = model.solver.max_steps

    f(z)  # weights are computed at the first call
    with Convolutions(keep=True) as log:
        f(z)
    macs = multiply_adds(lambda: slow(z))  # of direct convolutions; Winograd tiles take fewer

    ours_f, plain_f, convolutions = times(
        rounds,
        lambda: f(z),
        lambda: slow(z),
        lambda: [call() for call in log.calls],
        say=say,
        what=f"{name}: one f, batch {batch}",
    )
    model.tol = 0.0  # neither side may stop early: both take all N steps
    ours_solve, plain_solve, f_beside = times(
        rounds,
        lambda: model.solve(*model.begin(x), record=False),
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
            "macs_done": log.macs / batch,
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
