"""`robustdeq bench train`: one training step, PGD-AT and TRADES, with and without random states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from robustdeq import create_model
from robustdeq.cli.benchmarks.measure import arithmetic, beside_plain, multiply_adds, peak_rate, times
from robustdeq.models import MDEQ
from robustdeq.plain import default_layout
from robustdeq.plain import training as plain
from robustdeq.threat import Linf
from robustdeq.training import PGDAT, TRADES, Draws, Final, Objective, RandomState

BATCH = {"mdeq-large": 8, "mdeq-tiny": 96}
EPS, STEPS, STEP_SIZE = 8 / 255, 10, 2 / 255
DEPTHS = {f"attack.{k}": d for k, d in enumerate((1, 8, 2, 7, 3, 6, 4, 5, 4, 5))}
DEPTHS |= {"loss": 4, "clean": 4, "adversarial": 5, "target": 4}


class _Depths(Draws):
    """Draws whose random depths are spread over 1..8 with mean 4.5, so that one step has the mean cost of many."""

    def integer(self, name: str, low: int, high: int) -> int:
        """A fixed depth for each forward."""
        return DEPTHS[name.removeprefix("depth.")]


def train(
    models: list[str], batch: int | None, rounds: int, say: Callable[[str], None], *, compiled: bool = False
) -> list[dict[str, Any]]:
    """Records of a whole step (inner attack, losses, backward, Adam), seconds per image."""
    peak = peak_rate(rounds, say)
    return [
        record
        for name in models
        for record in _one(name, batch or BATCH.get(name, 32), rounds, peak, say, compiled=compiled)
    ]


def _one(
    name: str, batch: int, rounds: int, peak: float, say: Callable[[str], None], *, compiled: bool
) -> list[dict[str, Any]]:
    """All objectives of a model take turns, so that a slow phase of the machine hits them alike."""
    generator = torch.Generator().manual_seed(0)
    ours = create_model(name).train()
    other = default_layout(ours)
    x = torch.rand(batch, ours.config.in_channels, 32, 32, generator=generator)
    y = torch.randint(ours.config.num_classes, (batch,), generator=generator)
    optimizers = [torch.optim.Adam(m.parameters()) for m in (ours, other)]
    draws = _Depths(seed=0, step=0)

    def our_step(kind: str, random: bool) -> None:
        _update(optimizers[0], _objective(kind, random)(ours, x, y, draws).total)

    def plain_step(kind: str, random: bool) -> None:
        _update(optimizers[1], _plain_loss(kind, random, other, x, y, draws))

    rows = [(kind, random) for kind in ("pgdat", "trades") for random in (False, True)]
    jobs = [partial(step, *row) for row in rows for step in (our_step, plain_step)]
    say(f"{name}: counting multiply-adds")
    macs = [multiply_adds(job) for job in jobs]
    if compiled:
        ours.compile()
    taken = times(rounds, *jobs, say=say, what=f"{name}: training steps, batch {batch}")
    return [
        {
            "name": f"{_label(*row)}{', compiled' if compiled else ''}",
            "model": name,
            "batch": batch,
            **beside_plain(mine, theirs, batch),
            "samples_per_second": batch / min(mine),
            "total_macs": macs[2 * i] / batch,
            **arithmetic(min(mine), min(theirs), (macs[2 * i], macs[2 * i + 1]), peak),
        }
        for i, (row, mine, theirs) in enumerate(zip(rows, taken[::2], taken[1::2], strict=True))
    ]


def _label(kind: str, random: bool) -> str:
    return f"{kind} + random" if random else kind


def _update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _objective(kind: str, random: bool) -> Objective:
    states = RandomState() if random else Final()
    if kind == "pgdat":
        return PGDAT(states=states, threat=Linf(EPS), steps=STEPS, step_size=STEP_SIZE)
    return TRADES(states=states, threat=Linf(EPS), steps=STEPS, step_size=STEP_SIZE)


def _plain_loss(kind: str, random: bool, model: MDEQ, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
    variant = "paper" if random else None
    attack: dict[str, Any] = {"eps": EPS, "steps": STEPS, "step_size": STEP_SIZE, "random": variant}
    if kind == "pgdat":
        return plain.pgd_at_loss(model, plain.pgd_at_images(model, x, y, draws, **attack), y, draws, random=variant)
    return plain.trades_loss(model, x, plain.trades_images(model, x, draws, **attack), y, draws, random=variant)
