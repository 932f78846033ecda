"""Tests that return our numbers by golden name, and the comparison with the stored ones."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from .cases import CASES, NAMES, Case, Digest, arrays, matches, withheld

Numbers = Mapping[str, Tensor | np.ndarray | Digest]

FLOAT32 = 1e-6
"""For arrays that are stored rounded to float32."""


@dataclass(frozen=True)
class Comparison:
    """Which arrays a test compares."""

    test: str
    cases: tuple[str, ...]
    file: str
    patterns: tuple[str, ...]

    def covers(self, case: str, file: str, name: str) -> bool:
        return case in self.cases and file == self.file and matches(name, self.patterns)


COMPARISONS: list[Comparison] = []
"""Filled as the test modules are imported; `test_coverage.py` holds it against the files."""


def compares(
    file: str,
    *patterns: str,
    tol: float = 1e-8,
    atol: float | None = None,
    cases: tuple[str, ...] = NAMES,
    prefixes: tuple[str, ...] = (),
    round_trip: bool = False,
    long: Container[tuple[str, str]] = (),
) -> Callable[[Callable[..., Numbers]], Callable[..., None]]:
    """Turn a function of a case that returns our numbers into a test that they are the stored ones.

    The function must return exactly the arrays that the patterns match, so what is declared is what is compared.

    Args:
        file: basic, train, ...
        patterns: Of array names.
        tol: Largest difference, relative to the largest entry of the stored array.
        atol: Largest difference in absolute terms, instead of `tol`.
        cases: The cases whose files hold these arrays.
        prefixes: The function is run for each, as its argument `prefix`; patterns and returned names are without it.
        round_trip: The arrays are inputs that must come out again, so the function may read them.
        long: The pairs of a case's name and a prefix that take long.
    """

    def decorate(numbers: Callable[..., Numbers]) -> Callable[..., None]:
        for prefix in prefixes or ("",):
            full = tuple(prefix + pattern for pattern in patterns)
            COMPARISONS.append(Comparison(f"{numbers.__module__}.{numbers.__name__}", cases, file, full))

        @wraps(numbers)
        def test(case: Case, **arguments: Any) -> None:
            prefix = arguments.get("prefix", "")
            full = [prefix + pattern for pattern in patterns]
            with withheld(file, () if round_trip else full):
                ours = {prefix + name: value for name, value in numbers(case=case, **arguments).items()}
            stored = arrays(case.name, file)
            wanted = {name: stored[name] for name in stored if matches(name, full)}
            assert_meets(ours, wanted, tol=tol, atol=atol)

        if prefixes:
            pairs = [(name, prefix) for name in cases for prefix in prefixes]
            runs = [
                pytest.param(
                    CASES[name],
                    prefix,
                    id=f"{prefix.strip('_')}-{name}",
                    marks=[pytest.mark.long] if (name, prefix) in long else [],
                )
                for name, prefix in pairs
            ]
            return pytest.mark.parametrize(("case", "prefix"), runs)(test)
        return pytest.mark.parametrize("case", [CASES[name] for name in cases], ids=str)(test)

    return decorate


def assert_meets(ours: Numbers, golden: Mapping[str, np.ndarray], *, tol: float, atol: float | None = None) -> None:
    """Both have the same arrays, and they agree."""
    expanded = _expand(ours, golden)
    if expanded.keys() != golden.keys():
        odd = sorted(expanded.keys() ^ golden.keys())
        raise AssertionError(f"not both returned and stored: {', '.join(odd) or 'no array at all'}")
    if not golden:
        raise AssertionError("the patterns match no stored array")
    problems = [p for name in golden if (p := _disagreement(name, expanded[name], golden[name], tol, atol))]
    if problems:
        raise AssertionError("\n".join(problems))


def _expand(ours: Numbers, golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Digests become their three arrays."""
    expanded: dict[str, np.ndarray] = {}
    for name, value in ours.items():
        if isinstance(value, Digest):
            sub = golden.get(f"{name}_sub")
            samples = 1 if sub is None else sub.shape[-1]
            expanded |= {f"{name}_{part}": array for part, array in value.arrays(samples).items()}
        else:
            expanded[name] = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return expanded


def _disagreement(name: str, ours: np.ndarray, golden: np.ndarray, tol: float, atol: float | None) -> str | None:
    if ours.shape != golden.shape:
        return f"{name}: shape {ours.shape}, stored {golden.shape}"
    if not np.issubdtype(golden.dtype, np.floating):
        return None if np.array_equal(ours, golden) else f"{name}: {ours}, stored {golden}"
    if not np.issubdtype(ours.dtype, np.floating):
        return f"{name}: {ours.dtype}, stored {golden.dtype}"
    if not np.array_equal(np.isnan(ours), np.isnan(golden)):
        return f"{name}: NaN in other places"
    worst = np.nanmax(np.abs(ours.astype(np.float64) - golden))
    if golden.dtype == np.float32:
        tol = max(tol, FLOAT32)
    limit = atol if atol is not None else tol * np.nanmax(np.abs(golden.astype(np.float64)))
    return None if worst <= limit else f"{name}: differs by {worst:.3g}, allowed {limit:.3g}"
