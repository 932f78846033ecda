"""The numbers of one result as cells that say where they come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import (
    complete,
    finished,
    grid_size,
    limited,
    minimum_attacks,
    oblivious_grid,
    once,
)
from robustdeq.report.results.match import differences_from_the_paper, paper_row
from robustdeq.report.tables.table import NONE, Cell, bound, fewer, published, share

WHO = ("store", "training", "method")
"""The columns of `who`."""


def who(r: Result) -> list[Cell]:
    """The columns that say whose numbers a row holds."""
    return [Cell(word) for word in (r.name, r.training, r.described)]


def beside(r: Result, values: Iterable[float | None], table: str, *, digits: int = 2) -> list[Cell]:
    """The paper's numbers for a result, marked where ours cannot be compared with them."""
    comparable = not differences_from_the_paper(r)
    return [published(value, table, comparable=comparable, digits=digits) for value in values]


def because(r: Result, reasons: list[str] | None = None) -> Cell:
    """Whether ours may be compared with the paper's, and if not, why."""
    if paper_row(r) not in paper.TABLE_1:
        return Cell("not in the paper")
    reasons = differences_from_the_paper(r) if reasons is None else reasons
    return Cell("no: " + ", ".join(reasons) if reasons else "yes")


@once
def clean(r: Result) -> Cell:
    """Accuracy on clean images, once all of them were evaluated."""
    if not r.store.complete(None):
        return NONE
    found = metrics.clean_accuracy(r.store, predictor=r.predictor)
    return share(found, origin(r, "clean", "share with correct"))


@once
def minimum(r: Result) -> Cell:
    """The paper's accuracy under PGD: the lowest over the attacks of the grid; a bound if some were not planned."""
    names = minimum_attacks(r)
    if not complete(r, names):
        return NONE
    found = metrics.paper_minimum(r.store, names, predictor=r.predictor)
    cell = share(found, origin(r, "grid", f"minimum over {len(names)} attacks of the share without success"))
    run, whole = len(oblivious_grid(r)) or len(names), grid_size(r)
    in_part = r.manifest.dynamic and run < whole
    return replace(cell, kind="bound", beside=f"{run} of {whole} attacks") if in_part else cell


def ready(r: Result) -> Cell:
    """Accuracy under oblivious PGD-10 at the final state."""
    name = ready_attack(r)
    return NONE if name is None else under(r, name)


def ready_attack(r: Result) -> str | None:
    """The name of PGD-10 at the final state; of a model without dynamics, of its only PGD-10."""
    return next((name for name in ("pgd-ready", "pgd-direct") if name in r.store.attacks), None)


@once
def standard_autoattacks(r: Result) -> dict[str, Share]:
    """Accuracy under each finished AutoAttack; empty unless the predictor is the deployed one, which they attack."""
    return metrics.aa_accuracy(r.store) if r.predictor == "deployed" else {}


def strongest_autoattack(r: Result) -> str | None:
    """The finished AutoAttack with the lowest accuracy."""
    found = standard_autoattacks(r)
    return min(found, key=lambda name: (found[name].value, name)) if found else None


def autoattack(r: Result) -> Cell:
    """Accuracy under AutoAttack with standard budgets; a bound until every planned one is finished."""
    name = strongest_autoattack(r)
    if name is None:
        return NONE
    found, attacks = standard_autoattacks(r), r.manifest.attacks
    planned = [other for other in metrics.judged_attacks(r.store) if attacks[other].spec.is_standard_autoattack]
    cell = share(found[name], origin(r, f"clean and {name}", "share that is correct under both"))
    beside = fewer(found[name].images, r.manifest.data.images)
    return replace(bound(cell, len(found), len(planned)), beside=beside)


def lower(worst: Cell, aa: Cell) -> Cell:
    """The lower of the minimum under PGD and AutoAttack, where both are known.

    It is a bound if one of them is, or PGD's on all images if AutoAttack was run on the first ones only.
    """
    if worst is NONE or aa is NONE:
        return NONE
    lowest = min(worst, aa, key=lambda cell: float(cell.text))
    if aa.kind == "bound":
        return replace(lowest, kind="bound", small=aa.small)
    if worst.kind == "bound":
        return replace(lowest, kind="bound", beside=lowest.beside or worst.beside)
    return replace(worst, kind="bound") if aa.beside and lowest is worst else lowest


def union_of_all(r: Result) -> Cell:
    """The worst case per image over all finished attacks; a bound until all are finished."""
    planned, names = metrics.judged_attacks(r.store), finished(r)
    if not names or not r.store.complete(None):
        return NONE
    found = metrics.union_accuracy(r.store, names, predictor=r.predictor)
    part = f"the {len(names)} finished of {len(planned)}"
    which = f"clean and {f'all {len(names)}' if names == planned else part} attacks"
    cell = bound(share(found, origin(r, which, "never broken")), len(names), len(planned))
    return replace(cell, kind="bound") if limited(r) else cell


def under(r: Result, name: str) -> Cell:
    """Accuracy under one attack."""
    if name not in r.store.attacks or not complete(r, [name]):
        return NONE
    found = metrics.attack_shares(r.store, [name], predictor=r.predictor)
    return share(found[name], origin(r, name, "share without success"))


def origin(r: Result, what: str, how: str) -> str:
    """Which rows of which store a number comes from, and how they were reduced."""
    made = " (the attacks were made against predictor deployed)" if r.oblivious else ""
    return f"store {r.label}: {what}; predictor {r.predictor}, deployed state{made}; {how}"
