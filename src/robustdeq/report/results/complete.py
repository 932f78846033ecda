"""Which attacks a result is about, and which of them have been run on every image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.attacks import DAMPINGS, UNROLLINGS
from robustdeq.report.results.describe import Result

T = TypeVar("T")


def once(compute: Callable[[Result], T]) -> Callable[[Result], T]:
    """Compute a value once per result; it is forgotten together with the result's store."""
    known: WeakKeyDictionary[Store, dict[str, T]] = WeakKeyDictionary()

    def remembered(r: Result) -> T:
        values = known.setdefault(r.store, {})
        if r.predictor not in values:
            values[r.predictor] = compute(r)
        return values[r.predictor]

    remembered.__doc__ = compute.__doc__
    return remembered


def complete(r: Result, attacks: Sequence[str]) -> bool:
    """Whether there are such attacks and each of them was run on every image."""
    return bool(attacks) and not r.manifest.union and all(map(r.store.complete, attacks))


def grid(r: Result) -> list[str]:
    """The intermediate-state attacks on this predictor: all if it is the deployed one, else the oblivious ones."""
    return metrics.grid_attacks(r.store) if r.predictor == "deployed" else oblivious_grid(r)


def oblivious_grid(r: Result) -> list[str]:
    """The intermediate-state attacks with gradients of the undefended model."""
    attacks = r.manifest.attacks
    return [name for name in metrics.grid_attacks(r.store) if attacks[name].spec.group == "grid"]


def grid_size(r: Result) -> int:
    """How many attacks the whole oblivious grid has: 144 for the paper's 8 states."""
    return len(UNROLLINGS) * len(DAMPINGS) * r.states


def has_whole_grid(r: Result) -> bool:
    """Whether the whole oblivious grid was run on every image, not only a part such as its strongest attacks."""
    return len(oblivious_grid(r)) == grid_size(r) and complete(r, grid(r))


def has_part_of_grid(r: Result) -> bool:
    """Whether only a part of the grid, or none of it, was planned, and no AutoAttack: no row of the paper's Table 1."""
    part = r.manifest.dynamic and len(oblivious_grid(r)) < grid_size(r)
    return part and not any(record.spec.is_standard_autoattack for record in r.manifest.attacks.values())


def minimum_attacks(r: Result) -> list[str]:
    """The attacks that the paper takes the minimum over."""
    return grid(r) if r.manifest.dynamic else metrics.minimum_attacks(r.store)


def unfinished(r: Result) -> list[str]:
    """The attacks that count for the union and have not been run on every image."""
    return [name for name in metrics.judged_attacks(r.store) if not r.store.complete(name)]


@once
def finished(r: Result) -> list[str]:
    """The attacks that the union is over; none where images were dropped once another predictor failed on them."""
    known = r.predictor == "deployed" or not r.manifest.union
    return [name for name in metrics.judged_attacks(r.store) if r.store.complete(name)] if known else []


def limited(r: Result) -> dict[str, int]:
    """The finished attacks that were run on the first images only, and the number of these."""
    if r.predictor != "deployed":
        return {}
    images = r.manifest.data.images
    counts = {name: r.manifest.attacks[name].spec.runs_on(images) for name in finished(r)}
    return {name: count for name, count in counts.items() if count < images}
