"""Trainings of the same recipe under several seeds, side by side."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import groupby
from statistics import mean

from robustdeq.evaluation.pairing import tried_images
from robustdeq.report.numbers import autoattack, clean, finished, lowest_aa, minimum, ready, ready_attack
from robustdeq.report.sources import Result
from robustdeq.report.table import NONE, Cell, Table

NOTES = (
    "The mean over trainings that differ in nothing but the seed, by what their checkpoints say of themselves, and in "
    "brackets the lowest and the highest of them, all on the same images. PGD-10: the ready-made one, at the final "
    "state. PGD and AA as in Table 1, shown where every seed faced the same attacks on as many images.",
    "With few seeds the range is no interval: another training may well lie outside of it.",
)
Measure = tuple[Callable[[Result], Cell], Callable[[Result], Hashable]]
"""A number of a result, and what it is over, which must be the same for all seeds."""


def seeds(results: list[Result]) -> Table:
    """A row for each recipe that was trained more than once."""
    measures: tuple[Measure, ...] = (
        (clean, lambda r: None),
        (ready, ready_attack),
        (minimum, lambda r: tuple(r.minimum_attacks)),
        (autoattack, _autoattacked),
    )
    rows = []
    for same in _recipes(results):
        first, numbers = same[0], ", ".join(str(r.metadata["seed"]) for r in same)
        words = (first.training, first.described, first.model, first.data["name"], str(first.data["images"]), first.eps)
        rows.append([*map(Cell, words), Cell(numbers), *(_spread(same, *measure) for measure in measures)])
    head = ("training", "method", "model", "data", "images", "eps", "seeds", "clean", "PGD-10", "PGD", "AA")
    return Table("seeds", "Seeds. Accuracy (%) over several trainings of a recipe", head, rows, NOTES)


def _recipes(results: list[Result]) -> list[list[Result]]:
    """Results that share all but the seed, one for each of at least two seeds, in their order."""
    known = [r for r in results if r.training != "unknown" and r.metadata.get("seed") is not None]
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
    penalty = r.metadata.get("jacobian")
    return tuple(map(str, (r.training, r.described, r.model, penalty, r.settings, r.state, r.images)))


def _says(r: Result) -> tuple[bool, int]:
    """Of several stores of a seed, the last in this order is shown."""
    return lowest_aa(r) is not None, len(finished(r))


def _autoattacked(r: Result) -> int | None:
    name = lowest_aa(r)
    return None if name is None else tried_images(r.store, [name])


def _spread(same: list[Result], measure: Callable[[Result], Cell], over: Callable[[Result], Hashable]) -> Cell:
    """Mean, lowest and highest, if every one has a final number over the same."""
    cells = [measure(r) for r in same]
    if any(cell.kind != "ours" for cell in cells) or len({over(r) for r in same}) > 1:
        return NONE
    values = [float(cell.text) for cell in cells]
    text = f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    return Cell(text, "ours", " | ".join(cell.where for cell in cells))
