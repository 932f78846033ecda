"""Trainings of the same recipe under several seeds, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from statistics import mean

from robustdeq.report.numbers import autoattack, clean, finished, lowest_aa, minimum, ready, ready_attack
from robustdeq.report.sources import Result
from robustdeq.report.table import NONE, Cell, Table

NOTES = (
    "The mean over trainings that differ in nothing but the seed, by what their checkpoints say of themselves, and in "
    "brackets the lowest and the highest of them, all on the same images. PGD-10: the ready-made one, at the final "
    "state. PGD and AA as in Table 1. Each is shown where every seed faced the same attacks, in all their settings.",
    "With few seeds the range is no interval: another training may well lie outside of it.",
)
ITS_OWN = ("seed", "step", "validation")
"""How the words begin that a checkpoint has of its training alone, not of the recipe."""
Over = Callable[[Result], Iterable[str | None]]
Measure = tuple[Callable[[Result], Cell], Over]
"""A number of a result, and the attacks it is over, which must be the same for all seeds."""


def seeds(results: list[Result]) -> Table:
    """A row for each recipe that was trained more than once."""
    measures: tuple[Measure, ...] = (
        (clean, lambda r: ()),
        (ready, lambda r: (ready_attack(r),)),
        (minimum, lambda r: r.minimum_attacks),
        (autoattack, lambda r: (lowest_aa(r),)),
    )
    rows = []
    for same in _recipes(results):
        first, numbers = same[0], ", ".join(str(r.metadata["seed"]) for r in same)
        words = (first.training, first.described, first.model, first.data.name, str(first.data.images), first.eps)
        rows.append([*map(Cell, words), Cell(numbers), *(_spread(same, *measure) for measure in measures)])
    head = ("training", "method", "model", "data", "images", "eps", "seeds", "clean", "PGD-10", "PGD", "AA")
    return Table("seeds", "Seeds. Accuracy (%) over several trainings of a recipe", head, rows, NOTES)


def _recipes(results: list[Result]) -> list[list[Result]]:
    """Results that share all but the seed, one for each of at least two seeds, in their order."""
    # what the base of a defended store faced was made against its defence
    known = [r for r in results if r.metadata.get("seed") is not None and r.predictor != "base"]
    found = []
    for _, group in groupby(sorted(known, key=_recipe), key=_recipe):
        by_seed: dict[int, Result] = {}
        for r in sorted(group, key=_says):
            by_seed[r.metadata["seed"]] = r
        if len(by_seed) > 1:
            found.append([by_seed[seed] for seed in sorted(by_seed)])
    return found


def _recipe(r: Result) -> tuple[str, ...]:
    """What is the same for all seeds of a recipe, training and evaluation."""
    words = {name: word for name, word in r.metadata.items() if not name.startswith(ITS_OWN)}
    return tuple(map(str, (r.training, r.described, r.model, words, r.settings, r.state, r.images)))


def _says(r: Result) -> tuple[bool, int]:
    """Of several stores of a seed, the last in this order is shown."""
    return lowest_aa(r) is not None, len(finished(r))


def _spread(
    same: list[Result], measure: Callable[[Result], Cell], over: Callable[[Result], Iterable[str | None]]
) -> Cell:
    """Mean, lowest and highest, if every one has a final number over the same."""
    cells = [measure(r) for r in same]
    if any(cell.kind != "ours" for cell in cells) or len({_hashes(r, over(r)) for r in same}) > 1:
        return NONE
    values = [float(cell.text) for cell in cells]
    text = f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    return Cell(text, "ours", " | ".join(cell.where for cell in cells))


def _hashes(r: Result, attacks: Iterable[str | None]) -> frozenset[str]:
    """Of the attacks with all their settings."""
    configs = r.store.manifest.attacks
    return frozenset(configs[name].hash for name in attacks if name is not None)
