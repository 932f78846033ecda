"""`robustdeq bench defence`: a defended prediction, and the paper's grid of T_f and R (its Table 10)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from robustdeq import EarlyState, EntropyReduction
from robustdeq.cli.bench.measure import (
    arithmetic,
    beside_plain,
    macs_of_f,
    model_and_images,
    multiply_adds,
    times,
)
from robustdeq.plain import default_layout, defended_mdeq

BATCH = {"mdeq-large": 8, "mdeq-tiny": 64}
MAIN = (2, 10)
GRID = [(every, steps) for steps in (0, 1, 5, 10, 20) for every in (1, 2, 4, 8)]


@torch.no_grad()
def defence(name: str, batch: int | None, rounds: int, peak: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Records of predictions at z^[8], the paper's variant, seconds per image; T_f = 2, R = 10 first, then the grid.

    `every` is T_f and `steps` is R; R = 0 is the undefended prediction. `f_equivalents` are our multiply-adds, head and
    encoder included, in evaluations of f.
    """
    batch = batch or BATCH.get(name, 32)
    model, x = model_and_images(name, batch)
    model.tol = 0.0  # neither side may stop early
    other = default_layout(model)
    one_f = macs_of_f(model, x)
    undefended = partial(EarlyState(model, state=model.solver.max_steps), x)
    records: list[dict[str, Any]] = []
    for every, steps in [MAIN, *GRID]:
        ours = partial(EarlyState(EntropyReduction(model, every=every, steps=steps)), x)
        plain = partial(defended_mdeq, other, x, every=every, steps=steps, tol=0.0, judge_last=False)
        main = not records
        what = f"{name}: T_f = {every}, R = {steps}, batch {batch}, setting {len(records) + 1} of {1 + len(GRID)}"
        by_round = times(rounds if main else max(1, rounds // 3), ours, plain, undefended, say=say, what=what)
        taken = [min(each) for each in by_round]
        counted = multiply_adds(ours)
        record: dict[str, Any] = {
            "name": f"defended T_f={every} R={steps}" + ("" if main else ", grid"),
            "model": name,
            "batch": batch,
            "every": every,
            "steps": steps,
            "grid": not main,
            **beside_plain(by_round[0], by_round[1], batch),
            "over_undefended": taken[0] / taken[2],
            "samples_per_second": batch / taken[0],
            "f_equivalents": counted / one_f,
        }
        if main:
            macs = [counted, multiply_adds(plain), multiply_adds(undefended)]
            record |= {
                "total_macs": macs[0] / batch,
                "macs_over_undefended": macs[0] / macs[2],
                "over_undefended_at_peak": macs[0] / peak / taken[2],
                **arithmetic(taken[0], taken[1], (macs[0], macs[1]), peak),
            }
        records.append(record)
    return records
