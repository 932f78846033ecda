"""The paper's tables from stores, ours beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from robustdeq.evaluation import metrics
from robustdeq.evaluation.metrics import IncompleteError
from robustdeq.evaluation.statistics import Share
from robustdeq.report import paper
from robustdeq.report.sources import Result, Sources, budget
from robustdeq.report.table import NONE, Cell, Table, number, published, share

WHO = ("store", "training", "method")
TABLE_1 = ("clean", "PGD", "AA", "PGD, AA", "union", "paper: clean", "paper: PGD", "paper: AA", "comparable")
APART = "Numbers of the paper in brackets are not comparable with ours beside them; the last column says why."


def make_tables(sources: Sources) -> list[Table]:
    """Every table that the results allow."""
    makers: list[Callable[[list[Result]], Table | None]] = [
        table_1,
        table_2,
        table_3,
        table_4,
        table_5,
        tables_6_and_7,
        table_8,
        audits,
        every_attack,
    ]
    made = [make(sources.results) for make in makers] if sources.results else []
    return [_pruned(table) for table in made if table is not None and table.rows]


def table_1(results: list[Result]) -> Table:
    """Accuracies by what counts as robust."""
    rows = []
    for r in results:
        reasons = r.differences_from_the_paper()
        theirs = paper.TABLE_1.get((r.training, r.method), (None, None, None))
        clean = share(metrics.clean_accuracy(r.store, predictor=r.predictor), _where(r, "clean", "share with correct"))
        worst, aa, union = minimum(r), autoattack(r), union_of_all(r)
        both = [cell for cell in (worst, aa) if cell is not NONE]
        lowest = min(both, key=lambda cell: float(cell.text)) if len(both) == 2 else NONE
        ours = [clean, worst, aa, lowest, union]
        beside = [published(v, "Table 1", comparable=not reasons) for v in theirs]
        rows.append([*who(r), *map(Cell, (r.model, r.data["name"], str(r.data["images"]), r.eps)), *ours, *beside])
        rows[-1].append(because(r, reasons))
    return Table(
        "table-1",
        "Table 1. Accuracy (%) on clean images and under attack",
        (*WHO, "model", "data", "images", "eps", *TABLE_1),
        rows,
        (
            "PGD: the minimum over the grid of intermediate-state attacks of the accuracy over the data set, as the "
            "paper reports it. AA: AutoAttack with standard budgets. PGD, AA: the lower of the two. union: per image "
            "the worst case over every attack in the store, stricter, and dependent on which attacks were run.",
            APART,
        ),
    )


def table_2(results: list[Result]) -> Table:
    """The ready-made attack beside the worst intermediate one."""
    rows = []
    for r in results:
        final, worst = ready(r), minimum(r)
        if not r.store.manifest["dynamic"] or final is NONE or worst is NONE:
            continue
        reasons = r.differences_from_the_paper()
        theirs = paper.TABLE_2.get((r.training, r.method), (None, None))
        gap = number(float(final.text) - float(worst.text), f"{final.where} minus {worst.where}")
        beside = [published(v, "Table 2", comparable=not reasons) for v in theirs]
        rows.append([*who(r), final, worst, gap, *beside, because(r, reasons)])
    head = (*WHO, "final", "intermediate", "difference", "paper: final", "paper: intermediate", "comparable")
    return Table(
        "table-2", "Table 2. PGD-10 at the final state and at the worst intermediate state (%)", head, rows, (APART,)
    )


def table_3(results: list[Result]) -> Table | None:
    """Transfer between the variants."""
    whole = [r for r in results if r.predictor == "deployed" and r.store.manifest["dynamic"]]
    stores = {r.label: r.store for r in whole if not r.store.manifest["union"]}
    by_label = {r.label: r for r in whole}
    try:
        matrix = metrics.transfer_matrix(stores)
    except IncompleteError:
        return None
    pairs = {(row["target"], row["source"]): row for row in matrix.iter_rows(named=True)}
    if not any(target != source for target, source in pairs):
        return None
    labels = sorted({label for pair in pairs for label in pair})
    rows = []
    for target in labels:
        cells = []
        for source in labels:
            row = pairs.get((target, source))
            if row is None:
                cells.append(NONE)
                continue
            found = Share(row["accuracy"], row["low"], row["high"], by_label[target].data["images"])
            what = f"minimum over {row['attacks']} attacks made against {source}"
            cells.append(share(found, f"store {target}: predictor deployed, deployed state; {what}"))
        method = by_label[target]
        theirs = [_transfer_of_the_paper(method, by_label[source]) for source in labels]
        rows.append([Cell(target), Cell(method.method), *cells, *theirs])
    head = ("target", "method", *(f"from {label}" for label in labels), *(f"paper: {label}" for label in labels))
    note = (
        "A row is a model, a column the model that the attacks were made against; the diagonal is a model's own grid."
    )
    return Table(
        "table-3",
        "Table 3. Transfer: lowest accuracy (%) under attacks made against another",
        head,
        rows,
        (note, APART),
    )


def table_4(results: list[Result]) -> Table:
    """The strongest pairs under other searches."""
    pairs = list(paper.TABLE_4["pgd"])
    rows = []
    for r in results:
        attacks = r.store.manifest["attacks"]
        if r.predictor == "base" or not any(config["group"] == "table4" for config in attacks.values()):
            continue
        reasons = r.differences_from_the_paper()
        same = (r.training, r.method) == ("TRADES", paper.BOTH)
        for search in ("pgd", "apgd", "square"):
            names = [f"{search}-i{i}-K{k}-l0.5" for i, k in pairs]
            cells = [under(r, name) for name in names]
            rows.append([*who(r), Cell(f"{search}, ours"), *cells, because(r, reasons)])
            if same:
                theirs = [published(v, "Table 4", comparable=not reasons) for v in paper.TABLE_4[search].values()]
                rows.append([*who(r), Cell(f"{search}, paper"), *theirs, because(r, reasons)])
    head = (*WHO, "search", *(f"({i}, {k})" for i, k in pairs), "comparable")
    title = "Table 4. Accuracy (%) at the strongest (i, K_a) under PGD, APGD-CE and Square (that on up to 1,000 images)"
    return Table("table-4", title, head, rows, (APART,))


def table_5(results: list[Result]) -> Table:
    """Settings of the entropy reduction."""
    rows = []
    for r in results:
        settings = r.entropy
        worst = minimum(r)
        if settings is None or worst is NONE:
            continue
        every, steps = settings["every"], settings["descent"]["steps"]
        reasons = r.differences_from_the_paper()
        same = (r.training, r.method) == ("TRADES", paper.BOTH)
        theirs = paper.TABLE_5.get((every, steps)) if same else None
        rows.append(
            [
                *who(r),
                Cell(str(settings["variant"])),
                Cell(str(every)),
                Cell(str(steps)),
                worst,
                published(theirs, "Table 5", comparable=not reasons),
                because(r, reasons),
            ]
        )
    head = (*WHO, "variant", "T_f", "R", "PGD", "paper", "comparable")
    return Table(
        "table-5", "Table 5. Worst PGD accuracy (%) by settings of the entropy reduction", head, rows, (APART,)
    )


def tables_6_and_7(results: list[Result]) -> Table:
    """How attacks move the entropy."""
    rows = []
    for r in results:
        names = r.grid
        if not r.complete(names) or r.entropy is not None:
            continue
        change = metrics.entropy_change(r.store, names, predictor=r.predictor)
        reasons = r.differences_from_the_paper()
        where = _where(r, f"clean and {len(names)} attacks of the grid", "entropy, image by image")
        shares = [number(100 * v, where) for v in _spread(change["share"])]
        differences = [number(v, where, digits=4) for v in _spread(-change["difference"])]
        key = (r.training, r.method)
        theirs = [
            *(published(v, "Table 6", comparable=not reasons) for v in paper.TABLE_6.get(key, (None,) * 3)),
            *(published(v, "Table 7", comparable=not reasons, digits=4) for v in paper.TABLE_7.get(key, (None,) * 3)),
        ]
        rows.append([*who(r), *shares, *differences, *theirs, because(r, reasons)])
    three = ("mean", "lowest", "highest")
    head = (
        *WHO,
        *(f"P, {v}" for v in three),
        *(f"dH, {v}" for v in three),
        *(f"paper: P, {v}" for v in three),
        *(f"paper: dH, {v}" for v in three),
        "comparable",
    )
    note = (
        "P: share (%) of images whose clean entropy is lower than the attacked one. "
        "dH: mean of clean minus attacked entropy, nats."
    )
    return Table(
        "table-6-7", "Tables 6 and 7. Prediction entropy, clean and attacked, over the grid", head, rows, (note, APART)
    )


def table_8(results: list[Result]) -> Table:
    """The strongest unrolling at each state."""
    rows: list[list[Cell]] = []
    states = max((len(r.store.manifest["predictors"]["deployed"]["states"]) - 1 for r in results), default=0)
    for r in results:
        if not r.complete(r.grid):
            continue
        reasons = r.differences_from_the_paper()
        same = (r.training, r.method) == ("TRADES", paper.BOTH)
        table = metrics.strongest_by_state(r.store, predictor=r.predictor).filter(pl.col("attack").is_in(r.grid))
        for (aware, damping), found in table.group_by("aware", "damping", maintain_order=True):
            cells = [NONE] * states
            for row in found.iter_rows(named=True):
                cell = under(r, row["attack"])
                cells[row["i"] - 1] = replace(cell, small=f"K_a {row['K']}") if cell is not NONE else NONE
            attacker = Cell("aware" if aware else "oblivious")
            rows.append([*who(r), attacker, Cell(f"{damping:g}"), Cell("ours"), *cells, because(r, reasons)])
            if same and not aware and damping in paper.TABLE_8:
                theirs = [
                    replace(published(value, "Table 8", comparable=not reasons), small=f"K_a {k}")
                    for k, value in paper.TABLE_8[damping]
                ]
                theirs += [NONE] * (states - len(theirs))
                rows.append([*who(r), attacker, Cell(f"{damping:g}"), Cell("paper"), *theirs, because(r, reasons)])
    head = (*WHO, "attacker", "lambda", "whose", *(f"i = {i}" for i in range(1, states + 1)), "comparable")
    return Table("table-8", "Table 8. Accuracy (%) under the strongest K_a at each state", head, rows, (APART,))


def audits(results: list[Result]) -> Table:
    """What the audits found, the defended model beside its static base."""
    rows = []
    for r in (r for r in results if r.predictor == "deployed"):
        found = r.audit()
        if found is None:
            continue
        where = f"store {r.label}: audit.json"
        flags = ", ".join(flag["name"] for flag in found["flags"]) or "none"
        shares = [
            share(Share(**found[key]), f"{where}, {key}") if found[key] else NONE
            for key in ("clean", "union", "base_clean", "base_union")
        ]
        costs = [number(found["probes"][key], f"{where}, probes.{key}", digits=1) for key in ("cost", "base_cost")]
        rows.append([*who(r), Cell(", ".join(r.suites)), *shares, *costs, Cell(found["verdict"]), Cell(flags)])
    head = (*WHO, "suite", "clean", "union", "base: clean", "base: union", "cost", "base: cost", "verdict", "flags")
    note = (
        "cost: the arithmetic of a prediction, in evaluations of f. Verdicts and flags are explained in docs/audit.md."
    )
    return Table("audit", "Audits. Accuracy (%) under everything a reviewer would try", head, rows, (note,))


def every_attack(results: list[Result]) -> Table:
    """What was run besides the grid."""
    rows = []
    for r in results:
        for name, config in r.store.manifest["attacks"].items():
            if config["group"].startswith("grid"):
                continue
            cell = under(r, name)
            told = ", ".join(f"{k} {v}" for k, v in {**config["options"], **config["oracle_options"]}.items())
            kind = f"{config['attack']} / {config['oracle']}"
            words = (r.name, name, config["group"], kind, budget(config["eps"]), told)
            rows.append([*map(Cell, words), cell])
    head = ("store", "attack", "group", "search / oracle", "eps", "settings", "accuracy")
    return Table("attacks", "Every other attack in the stores (%)", head, rows)


def who(r: Result) -> list[Cell]:
    """The columns that say whose numbers these are."""
    return [Cell(word) for word in (r.name, r.training, r.method)]


def because(r: Result, reasons: list[str]) -> Cell:
    """Whether ours and the paper's may be compared."""
    if (r.training, r.method) not in paper.TABLE_1:
        return Cell("not in the paper")
    return Cell("no: " + ", ".join(reasons) if reasons else "yes")


def minimum(r: Result) -> Cell:
    """The paper's number under PGD."""
    names = r.grid if r.store.manifest["dynamic"] else metrics.minimum_attacks(r.store)
    if not r.complete(names):
        return NONE
    found = metrics.paper_minimum(r.store, names, predictor=r.predictor)
    return share(found, _where(r, "grid", f"minimum over {len(names)} attacks of the share without success"))


def ready(r: Result) -> Cell:
    """PGD-10 at the final state, oblivious."""
    names = [name for name in ("pgd-ready", "pgd-direct") if name in r.store.attacks]
    return under(r, names[0]) if names else NONE


def autoattack(r: Result) -> Cell:
    """Standard AutoAttack; of several the lowest. What was run on a defended model says nothing of its base."""
    if r.store.manifest["union"] or r.predictor == "base":
        return NONE
    found = metrics.aa_accuracy(r.store)
    if not found:
        return NONE
    name = min(found, key=lambda key: (found[key].value, key))
    return share(found[name], _where(r, f"clean and {name}", "share that is correct under both"))


def union_of_all(r: Result) -> Cell:
    """The worst case over whatever is complete."""
    planned = metrics.judged_attacks(r.store)
    names = [name for name in planned if r.store.complete(name)]
    if not names:
        return NONE
    try:
        found = metrics.union_accuracy(r.store, names, predictor=r.predictor)
    except IncompleteError:
        return NONE
    which = (
        f"clean and all {len(names)} attacks"
        if names == planned
        else f"clean and the {len(names)} finished of {len(planned)} attacks"
    )
    return share(found, _where(r, which, "never broken"))


def under(r: Result, name: str) -> Cell:
    """The accuracy under one attack."""
    if name not in r.store.attacks or not r.complete([name]):
        return NONE
    row = metrics.accuracy(r.store, [name], predictor=r.predictor).row(0, named=True)
    found = Share(row["accuracy"], row["low"], row["high"], row["images"])
    return share(found, _where(r, name, "share without success"))


def _pruned(table: Table) -> Table:
    """Without columns for the paper's numbers where it has none, and then without words on comparing."""
    empty = {
        k
        for k, name in enumerate(table.head)
        if name.startswith("paper") and all(row[k].kind == "none" for row in table.rows)
    }
    beside = any(name.startswith("paper") and k not in empty for k, name in enumerate(table.head))
    beside = beside or any(cell.kind in ("paper", "apart") for row in table.rows for cell in row)
    keep = [k for k, name in enumerate(table.head) if k not in empty and (beside or name != "comparable")]
    return replace(
        table,
        head=[table.head[k] for k in keep],
        rows=[[row[k] for k in keep] for row in table.rows],
        notes=[note for note in table.notes if beside or note != APART],
    )


def _where(r: Result, what: str, how: str) -> str:
    return f"store {r.label}: {what}; predictor {r.predictor}, deployed state; {how}"


def _spread(values: pl.Series) -> tuple[float, float, float]:
    floats: list[Any] = [values.mean(), values.min(), values.max()]
    return float(floats[0]), float(floats[1]), float(floats[2])


def _transfer_of_the_paper(target: Result, source: Result) -> Cell:
    if target.training != "TRADES" or source.training != "TRADES":
        return NONE
    comparable = not (target.differences_from_the_paper() or source.differences_from_the_paper())
    return published(paper.TABLE_3.get((target.method, source.method)), "Table 3", comparable=comparable)
