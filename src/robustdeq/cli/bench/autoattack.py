"""`robustdeq bench evaluate --attack autoattack`: AutoAttack along cold and along carried gradients."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from robustdeq.attacks import AutoAttack
from robustdeq.attacks.oracles import READY, CarriedEstimate, Estimate, Oracle
from robustdeq.cli.bench.measure import COUNTED, macs_of_f, multiply_adds
from robustdeq.cli.progress import left
from robustdeq.defences import EarlyState
from robustdeq.models import MDEQ
from robustdeq.threat import Linf

BUDGETS: dict[str, Any] = dict(AutoAttack.STANDARD)
BATCH = 100


def autoattack(
    model: MDEQ, name: str, x: Tensor, y: Tensor, eps: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Records of standard AutoAttack on the deployed predictor at z^[N]; misclassified images are left alone.

    Cold is the ready-made gradient: nine unrolled steps from the solved state. `left` images stay correct. Plain has no
    AutoAttack. The two oracles take turns batch by batch, so that a slow phase of the machine hits both.
    """
    deployed = EarlyState(model, state=model.solver.max_steps)
    attack, one_f = AutoAttack(Linf(eps), **BUDGETS), macs_of_f(model, x[:1])
    carried = CarriedEstimate(deployed, values="deployed")
    oracles: dict[str, tuple[Oracle, dict[str, Any]]] = {
        "autoattack": (Estimate(deployed, gradient=READY, values="deployed"), {"inner": "cold"}),
        f"autoattack, carried J={carried.iterations}": (
            carried,
            {"inner": "carried", "iterations": carried.iterations},
        ),
    }
    seconds, kept = dict.fromkeys(oracles, 0.0), dict.fromkeys(oracles, 0)
    begin, batches = time.perf_counter(), range(0, len(x), BATCH)
    for done, first in enumerate(batches):
        images, labels = x[first : first + BATCH], y[first : first + BATCH]
        for label, (oracle, _) in oracles.items():
            rest = left(done, len(batches), time.perf_counter() - begin)
            say(f"{name}: {label}: batch {done + 1} of {len(batches)}{rest}")
            start = time.perf_counter()
            result = attack(oracle, images, labels, every_image=False, index=range(first, first + len(images)))
            seconds[label] += time.perf_counter() - start
            kept[label] += int((~result.success).sum())
    cold = next(iter(seconds.values()))
    few, records = min(COUNTED, len(x)), []
    for label, (oracle, fields) in oracles.items():
        say(f"{name}: {label}: counting multiply-adds on {few} images")
        macs = multiply_adds(partial(attack, oracle, x[:few], y[:few], every_image=False, index=range(few)))
        records.append(
            {
                "name": label,
                "model": name,
                "batch": min(BATCH, len(x)),
                "images": len(x),
                **fields,
                "ours": seconds[label] / len(x),
                "plain": None,
                "speedup": None,
                "samples_per_second": len(x) / seconds[label],
                **({"over_cold": cold / seconds[label]} if fields["inner"] == "carried" else {}),
                "f_equivalents": macs / few / one_f,
                "left": kept[label],
            }
        )
    return records
