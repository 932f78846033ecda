"""Budgets written as numbers or fractions, such as 8/255."""

from __future__ import annotations

import math
import re
from fractions import Fraction

Budget = float | str
"""A number, or a string with a number or a fraction such as "8/255"."""


def number(value: Budget, name: str = "a budget") -> float:
    """The value of a budget; `name` is its name in the error message."""
    try:
        if isinstance(value, bool):
            raise TypeError
        fraction = isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,30}/\d{1,30}\s*", value)
        found = float(Fraction(value)) if fraction else float(value)
    except (ValueError, TypeError, ArithmeticError):
        found = math.nan
    if not math.isfinite(found):
        shown = repr(value) if len(repr(value)) < 100 else f"{repr(value)[:100]}..."
        raise ValueError(f"{name} must be a number or a fraction such as 8/255, got {shown}")
    return found
