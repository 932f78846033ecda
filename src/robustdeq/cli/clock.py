"""Times as people write and read them."""

from __future__ import annotations

import math
import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> float:
    """Seconds of 90s, 30m, 2h, 1h30m, or a plain number."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if "".join(number + unit for number, unit in parts) == text and parts:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"--budget must be a time such as 90s, 30m, 2h or 1h30m, got {text!r}")
    return seconds


def clock(seconds: float) -> str:
    """1:05:09."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def left(done: int, total: int, elapsed: float) -> str:
    """The end of a line of progress: what is still to come if it goes on as so far."""
    return f", {clock(elapsed / done * (total - done))} left" if done else ""
