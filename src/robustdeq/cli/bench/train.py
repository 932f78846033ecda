"""`robustdeq bench train`: one step of PGD-AT and TRADES, final and random states, cold and carried inner attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch._functorch.config as functorch
from torch import Tensor
from typing_extensions import override

from robustdeq.cli.bench.measure import (
    arithmetic,
    beside_plain,
    macs_of_f,
    model_and_images,
    multiply_adds,
    times,
)
from robustdeq.models import MDEQ
from robustdeq.plain import default_layout
from robustdeq.plain import training as plain
from robustdeq.threat import Linf
from robustdeq.training import PGDAT, TRADES, Carried, Cold, Draws, Final, Objective, RandomState

BATCH = {"mdeq-large": 8, "mdeq-tiny": 96}
EPS, STEPS, STEP_SIZE = 8 / 255, 10, 2 / 255
DEPTHS = {f"attack.{k}": d for k, d in enumerate((1, 8, 2, 7, 3, 6, 4, 5, 4, 5))}
DEPTHS |= {"loss": 4, "clean": 4, "adversarial": 5, "target": 4, "attack": 5}


class _Depths(Draws):
    """Draws whose random depths are spread over 1..8 with mean 4.5, so that one step has the mean cost of many."""

    @override
    def integer(self, name: str, low: int, high: int) -> int:
        return DEPTHS[name.removeprefix("depth.")]


@dataclass(frozen=True)
class Row:
    """What one row of the benchmark trains with."""

    kind: str
    random: bool
    iterations: int | None
    """Iterations per inner step of a carried inner attack; None for a cold one."""
    unroll: int | None = None
    """Phantom steps of the loss's own passes; None for the model's 5."""

    @property
    def label(self) -> str:
        """The name of the record."""
        states = f"{self.kind} + random" if self.random else self.kind
        label = states if self.iterations is None else f"{states}, carried J={self.iterations}"
        return label if self.unroll is None else f"{label}, unroll {self.unroll}"

    @property
    def fields(self) -> dict[str, Any]:
        """What it trains with, as fields of the record."""
        inner = {"inner": "cold"} if self.iterations is None else {"inner": "carried", "iterations": self.iterations}
        unroll = {} if self.unroll is None else {"unroll": self.unroll}
        return {"objective": self.kind, "states": "random" if self.random else "final", **inner, **unroll}

    def cold(self) -> Row:
        """The same training with a cold inner attack and the model's own unrolling."""
        return replace(self, iterations=None, unroll=None)

    def objective(self) -> Objective:
        """The objective of our side."""
        return (PGDAT if self.kind == "pgdat" else TRADES)(
            states=RandomState() if self.random else Final(),
            threat=Linf(EPS),
            steps=STEPS,
            step_size=STEP_SIZE,
            inner=Cold() if self.iterations is None else Carried(iterations=self.iterations),
            unroll=self.unroll,
        )

    def plain_loss(self, model: MDEQ, x: Tensor, y: Tensor, draws: Draws) -> Tensor:
        """The loss of the plain side, inner attack included."""
        variant = "paper" if self.random else None
        carried = None if self.iterations is None else plain.CarriedPair(iterations=self.iterations)
        attack: dict[str, Any] = {"eps": EPS, "steps": STEPS, "step_size": STEP_SIZE}
        attack |= {"random": variant, "carried": carried}
        loss: dict[str, Any] = {"random": variant} | ({} if self.unroll is None else {"unrolled": self.unroll})
        if self.kind == "pgdat":
            return plain.pgd_at_loss(model, plain.pgd_at_images(model, x, y, draws, **attack), y, draws, **loss)
        return plain.trades_loss(model, x, plain.trades_images(model, x, draws, **attack), y, draws, **loss)


ROWS = [
    Row(kind, random, iterations, unroll)
    for iterations, unroll in ((None, None), (1, None), (2, None), (1, 2))
    for kind in ("pgdat", "trades")
    for random in (False, True)
]


def train(
    name: str,
    batch: int | None,
    rounds: int,
    peak: float,
    say: Callable[[str], None],
    *,
    compiled: bool = False,
    rows: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Records of a whole step (inner attack, losses, backward, Adam), seconds per image.

    `f_equivalents` is the step's number of multiply-adds over that of one f; `over_cold` is how many times faster a
    step with a carried inner attack is than our own step with a cold one. All rows of a model take turns, so that a
    slow phase of the machine hits them alike.
    """
    chosen = [row for row in ROWS if rows is None or row.label in rows]
    if rows is not None and len(chosen) < len(rows):
        raise ValueError(
            f"--rows: {'; '.join(rows)} are not all rows of bench train: {'; '.join(r.label for r in ROWS)}"
        )
    batch = batch or BATCH.get(name, 32)
    model, x = model_and_images(name, batch)
    ours = model.train()
    other = default_layout(ours)
    y = torch.randint(ours.config.num_classes, (batch,), generator=torch.Generator().manual_seed(0))
    optimizers = [torch.optim.Adam(m.parameters()) for m in (ours, other)]
    draws = _Depths(seed=0, step=0)

    def our_step(row: Row) -> None:
        _update(optimizers[0], row.objective()(ours, x, y, draws).total)

    def plain_step(row: Row) -> None:
        _update(optimizers[1], row.plain_loss(other, x, y, draws))

    jobs = [partial(step, row) for row in chosen for step in (our_step, plain_step)]
    say(f"{name}: counting multiply-adds")
    macs = [multiply_adds(job) for job in jobs]
    one_f = macs_of_f(ours, x)
    if compiled:
        functorch.donated_buffer = False  # a carried inner attack walks back through one graph twice
        ours.compile()
    taken = times(rounds, *jobs, say=say, what=f"{name}: training steps, batch {batch}")
    least = {row: min(mine) for row, mine in zip(chosen, taken[::2], strict=True)}
    return [
        {
            "name": f"{row.label}{', compiled' if compiled else ''}",
            "model": name,
            "batch": batch,
            **row.fields,
            **beside_plain(mine, theirs, batch),
            "samples_per_second": batch / least[row],
            **({"over_cold": least[cold] / least[row]} if (cold := row.cold()) in least and cold != row else {}),
            "f_equivalents": macs[2 * i] / one_f,
            "total_macs": macs[2 * i] / batch,
            **arithmetic(least[row], min(theirs), (macs[2 * i], macs[2 * i + 1]), peak),
        }
        for i, (row, mine, theirs) in enumerate(zip(chosen, taken[::2], taken[1::2], strict=True))
    ]


def _update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
