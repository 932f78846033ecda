"""The numbers of one result, as cells that say where they come from."""

from __future__ import annotations

from dataclasses import replace

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report import paper
from robustdeq.report.sources import Result
from robustdeq.report.table import NONE, Cell, bound, share


def who(r: Result) -> list[Cell]:
    """The columns that say whose numbers these are."""
    return [Cell(word) for word in (r.name, r.training, r.described)]


def because(r: Result, reasons: list[str]) -> Cell:
    """Whether ours and the paper's may be compared."""
    if (r.training, r.method) not in paper.TABLE_1:
        return Cell("not in the paper")
    return Cell("no: " + ", ".join(reasons) if reasons else "yes")


def clean(r: Result) -> Cell:
    """Without any attack, once every image was looked at."""
    if not r.store.complete(None):
        return NONE
    found = metrics.clean_accuracy(r.store, predictor=r.predictor)
    return share(found, origin(r, "clean", "share with correct"))


def minimum(r: Result) -> Cell:
    """The paper's number under PGD."""
    names = r.minimum_attacks
    if not r.complete(names):
        return NONE
    found = metrics.paper_minimum(r.store, names, predictor=r.predictor)
    return share(found, origin(r, "grid", f"minimum over {len(names)} attacks of the share without success"))


def ready(r: Result) -> Cell:
    """PGD-10 at the final state, oblivious."""
    name = ready_attack(r)
    return NONE if name is None else under(r, name)


def ready_attack(r: Result) -> str | None:
    """Its name; without dynamics it is the one PGD-10 there is."""
    return next((name for name in ("pgd-ready", "pgd-direct") if name in r.store.attacks), None)


def autoattack(r: Result) -> Cell:
    """Standard AutoAttack."""
    name = lowest_aa(r)
    if name is None:
        return NONE
    found, configs = metrics.aa_accuracy(r.store), r.store.manifest.attacks
    planned = [other for other in metrics.judged_attacks(r.store) if configs[other].spec.is_standard_autoattack]
    cell = share(found[name], origin(r, f"clean and {name}", "share that is correct under both"))
    return bound(cell, len(found), len(planned))


def lower(worst: Cell, aa: Cell) -> Cell:
    """Of the minimum under PGD and AutoAttack, where both are known; it is a bound if AutoAttack is."""
    if worst is NONE or aa is NONE:
        return NONE
    lowest = min(worst, aa, key=lambda cell: float(cell.text))
    return replace(lowest, kind=aa.kind, small=aa.small) if aa.kind == "bound" else lowest


def lowest_aa(r: Result) -> str | None:
    """Of several AutoAttacks the one that leaves least; its images only transfer to what is not deployed."""
    found = metrics.aa_accuracy(r.store) if r.predictor == "deployed" else {}
    return min(found, key=lambda key: (found[key].value, key)) if found else None


def finished(r: Result) -> list[str]:
    """The attacks that the union is over; none where images left by another predictor."""
    known = r.predictor == "deployed" or not r.store.manifest.union
    return [name for name in metrics.judged_attacks(r.store) if r.store.complete(name)] if known else []


def limited(r: Result) -> dict[str, int]:
    """The finished attacks on some of the images only, and on how many."""
    if r.predictor != "deployed":
        return {}
    limits = {name: r.store.manifest.attacks[name].spec.limit for name in finished(r)}
    return {name: limit for name, limit in limits.items() if limit is not None and limit < r.data.images}


def union_of_all(r: Result) -> Cell:
    """The worst case over whatever is complete: a bound, if something is not."""
    planned, names = metrics.judged_attacks(r.store), finished(r)
    if not names or not r.store.complete(None):
        return NONE
    found = metrics.union_accuracy(r.store, names, predictor=r.predictor)
    which = (
        f"clean and all {len(names)} attacks"
        if names == planned
        else f"clean and the {len(names)} finished of {len(planned)} attacks"
    )
    return bound(share(found, origin(r, which, "never broken")), len(names), len(planned))


def under(r: Result, name: str) -> Cell:
    """The accuracy under one attack."""
    if name not in r.store.attacks or not r.complete([name]):
        return NONE
    row = metrics.accuracy(r.store, [name], predictor=r.predictor).row(0, named=True)
    found = Share(row["accuracy"], row["low"], row["high"], row["images"])
    return share(found, origin(r, name, "share without success"))


def origin(r: Result, what: str, how: str) -> str:
    """Which rows of which store, and how they were reduced."""
    made = " (the attacks were made against predictor deployed)" if r.oblivious else ""
    return f"store {r.label}: {what}; predictor {r.predictor}, deployed state{made}; {how}"
