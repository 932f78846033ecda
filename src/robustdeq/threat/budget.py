"""Budgets written as numbers or fractions, such as 8/255."""

from __future__ import annotations

from fractions import Fraction

Budget = float | str
"""A number, or a string with a number or a fraction such as "8/255"."""


def number(value: Budget, name: str = "a budget") -> float:
    """The value of a budget; `name` is its name in the error message."""
    try:
        return float(Fraction(value)) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, ZeroDivisionError):
        raise ValueError(f"{name} must be a number or a fraction such as 8/255, got {value!r}") from None
