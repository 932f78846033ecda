"""`robustdeq bench train`: one training step, PGD-AT and TRADES, with and without random states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from robustdeq import create_model
from robustdeq.cli.benchmarks.measure import best_times
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
    return [
        _one(name, kind, random, batch or BATCH.get(name, 32), rounds, say, compiled)
        for name in models
        for kind in ("pgdat", "trades")
        for random in (False, True)
    ]


def _one(
    name: str, kind: str, random: bool, batch: int, rounds: int, say: Callable[[str], None], compiled: bool
) -> dict[str, Any]:
    label = f"{kind}{' + random' if random else ''}{', compiled' if compiled else ''}"
    say(f"{name}: {label}, batch {batch}")
    generator = torch.Generator().manual_seed(0)
    ours = create_model(name).train()
    other = default_layout(ours)
    x = torch.rand(batch, ours.config.in_channels, 32, 32, generator=generator)
    y = torch.randint(ours.config.num_classes, (batch,), generator=generator)
    objective = _objective(kind, random)
    optimizers = [torch.optim.Adam(m.parameters()) for m in (ours, other)]
    draws = _Depths(seed=0, step=0)

    def our_step() -> None:
        _update(optimizers[0], objective(ours, x, y, draws).total)

    def plain_step() -> None:
        _update(optimizers[1], _plain_loss(kind, random, other, x, y, draws))

    if compiled:
        ours.compile()
        our_step()
    ours_seconds, plain_seconds = best_times(rounds, our_step, plain_step)
    return {
        "name": label,
        "model": name,
        "batch": batch,
        "ours": ours_seconds / batch,
        "plain": plain_seconds / batch,
        "speedup": plain_seconds / ours_seconds,
        "samples_per_second": batch / ours_seconds,
    }


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
