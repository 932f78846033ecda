"""Tables 9 and 10: images per second of training and of defended predictions, from records of `robustdeq bench`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from robustdeq.report import paper
from robustdeq.report.results.benchmarks import Benchmark, PredictionSpeed, TrainingSpeed
from robustdeq.report.results.describe import OBJECTIVES
from robustdeq.report.tables.table import APART, NONE, Cell, Table, number, published

MACHINE = (
    "Images per second depend on the machine: compare rows of one file only, and of the paper's (one RTX 3090) the "
    "ratios. No number of another table depends on these."
)
ELSEWHERE = Cell("no: another machine")


def table_9(benchmarks: list[Benchmark]) -> Table:
    """Training speed without and with random intermediate states."""
    rows = []
    for b in benchmarks:
        for t in b.trainings:
            method, key = _method(t), (OBJECTIVES[t.objective], _method(t))
            base = next((o for o in b.trainings if _same_but_states(t, o) and not o.random), None)
            where = f"{b.label}: samples_per_second, commit {t.commit}"
            ratio = number(t.speed / base.speed, where) if base and t.random else NONE
            theirs = [paper.TABLE_9[key], paper.TABLE_9[key] / paper.TABLE_9[key[0], paper.BASE] if t.random else None]
            rows.append(
                [
                    *map(Cell, (b.label, key[0], method, t.how, t.model, str(t.batch))),
                    number(t.speed, where),
                    ratio,
                    *(published(value, "Table 9", comparable=False) for value in theirs),
                    Cell(t.machine),
                    ELSEWHERE,
                ]
            )
    ours = ("file", "training", "method", "inner attack", "model", "batch", "images/s", "over baseline")
    head = (*ours, "paper: images/s", "paper: over baseline", "machine", "comparable")
    title = "Table 9. Training speed (images per second)"
    return Table("table-9", title, head, rows, (MACHINE, APART))


def _method(t: TrainingSpeed) -> str:
    return paper.RANDOM if t.random else paper.BASE


def _same_but_states(a: TrainingSpeed, b: TrainingSpeed) -> bool:
    return (a.objective, a.how, a.model, a.batch) == (b.objective, b.how, b.model, b.batch)


def table_10(benchmarks: list[Benchmark]) -> Table:
    """Speed of a prediction by T_f and R of the entropy reduction."""
    rows = []
    columns = sorted({p.steps for b in benchmarks for p in b.predictions})
    for b in benchmarks:
        ordered = sorted(b.predictions, key=lambda p: (p.model, p.batch, p.every))
        for (model, batch, every), group in groupby(ordered, key=lambda p: (p.model, p.batch, p.every)):
            found = _by_steps(list(group))
            theirs = [paper.TABLE_10.get((every, steps)) for steps in columns]
            any_one = next(iter(found.values()))
            where = f"{b.label}: samples_per_second, commit {any_one.commit}"
            cells = [number(found[steps].speed, where) if steps in found else NONE for steps in columns]
            cells += [published(value, "Table 10", comparable=False) for value in theirs]
            words = (b.label, model, str(batch), str(every))
            rows.append([*map(Cell, words), *cells, Cell(any_one.machine), ELSEWHERE])
    settings = [f"{whose}R = {n}" for whose in ("", "paper: ") for n in columns]
    head = ("file", "model", "batch", "T_f", *settings, "machine", "comparable")
    title = "Table 10. Speed of a defended prediction (images per second) by T_f and R; R = 0 is undefended"
    return Table("table-10", title, head, rows, (MACHINE, APART))


def _by_steps(found: Sequence[PredictionSpeed]) -> dict[int, PredictionSpeed]:
    """The records of a row by R; where one setting was measured twice, the one measured like the others of the grid."""
    return {p.steps: p for p in sorted(found, key=lambda p: p.grid)}
