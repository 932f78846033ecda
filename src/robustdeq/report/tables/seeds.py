"""Trainings that differ only in their seed: mean and range of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from statistics import mean
from typing import Any

from robustdeq.report.results import Result
from robustdeq.report.results.complete import finished, minimum_attacks
from robustdeq.report.results.match import images_key
from robustdeq.report.tables.numbers import autoattack, clean, minimum, ready, ready_attack, strongest_autoattack
from robustdeq.report.tables.table import NONE, Cell, Table

NOTES = (
    "The mean over trainings that differ in nothing but the seed, by what their checkpoints say of themselves, and in "
    "brackets the lowest and the highest of them, all on the same images. PGD-10: the ready-made one, at the final "
    "state. PGD and AA as in Table 1. Each is shown where every seed faced the same attacks, in all their settings.",
    "With few seeds the range is no interval: another training may well lie outside of it.",
)
NOT_OF_THE_RECIPE = ("seed", "step", "validation")
"""Prefixes of a checkpoint's metadata that describe one training, not its recipe."""
Measure = tuple[Callable[[Result], Cell], Callable[[Result], Iterable[str | None]]]
"""A number of a result, and the attacks behind it, which must be the same for all seeds."""


def seeds(results: list[Result]) -> Table:
    """One row per recipe that was trained under several seeds."""
    measures: tuple[Measure, ...] = (
        (clean, lambda r: ()),
        (ready, lambda r: (ready_attack(r),)),
        (minimum, minimum_attacks),
        (_finished_autoattack, lambda r: (strongest_autoattack(r),)),
    )
    rows = []
    for same in _recipes(results):
        first, numbers = same[0], ", ".join(str(_metadata(r)["seed"]) for r in same)
        data, model = first.manifest.data, first.manifest.model.kind
        words = (first.training, first.described, model, data.name, str(data.images), first.eps, numbers)
        rows.append([*map(Cell, words), *(_spread(same, *measure) for measure in measures)])
    head = ("training", "method", "model", "data", "images", "eps", "seeds", "clean", "PGD-10", "PGD", "AA")
    return Table("seeds", "Seeds. Accuracy (%) over several trainings of a recipe", head, rows, NOTES)


def _recipes(results: list[Result]) -> list[list[Result]]:
    """Groups of results that differ only in their seed, one result for each of at least two seeds, sorted by seed."""
    # the base of a defended store is left out: the attacks it was shown were made against its defence
    known = [r for r in results if _metadata(r).get("seed") is not None and r.predictor != "base"]
    found = []
    for _, group in groupby(sorted(known, key=_recipe), key=_recipe):
        by_seed: dict[int, Result] = {}
        # of several stores of a seed the one with AutoAttack and most attacks is shown
        for r in sorted(group, key=lambda r: (strongest_autoattack(r) is not None, len(finished(r)))):
            by_seed[_metadata(r)["seed"]] = r
        if len(by_seed) > 1:
            found.append([by_seed[seed] for seed in sorted(by_seed)])
    return found


def _recipe(r: Result) -> tuple[str, ...]:
    """Equal for all seeds of a recipe that were evaluated alike."""
    words = {name: word for name, word in _metadata(r).items() if not name.startswith(NOT_OF_THE_RECIPE)}
    model, state = r.manifest.model.kind, r.record.deployed_state
    return tuple(map(str, (r.training, r.described, model, words, r.entropy, state, images_key(r))))


def _metadata(r: Result) -> dict[str, Any]:
    return r.manifest.model.metadata


def _spread(
    same: list[Result], measure: Callable[[Result], Cell], over: Callable[[Result], Iterable[str | None]]
) -> Cell:
    """Mean, lowest and highest, if every seed has a final number under the same attacks."""
    cells = [measure(r) for r in same]
    attacks = {frozenset(r.manifest.attacks[name].hash for name in over(r) if name is not None) for r in same}
    if NONE in cells or len(attacks) > 1:
        return NONE
    values = [float(cell.text) for cell in cells]
    text = f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    return replace(cells[0], text=text, where=" | ".join(cell.where for cell in cells), small="")


def _finished_autoattack(r: Result) -> Cell:
    return cell if (cell := autoattack(r)).kind == "ours" else NONE
