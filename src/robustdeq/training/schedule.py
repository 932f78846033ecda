"""Learning rates as pure functions of the step."""

from __future__ import annotations

import math


def cosine(step: int, total: int, *, peak: float, final: float, warmup: int = 0) -> float:
    """Linear warm-up to `peak`, then half a cosine that would reach `final` after `total` steps."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def onecycle(step: int, total: int, *, peak: float, final: float, warmup: int = 0) -> float:
    """Linear warm-up to `peak`, over 2/5 of all steps if `warmup` is 0, then a line that would reach `final`."""
    warmup = warmup or 2 * total // 5
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak + (final - peak) * min(1.0, (step - warmup) / max(1, total - warmup))
