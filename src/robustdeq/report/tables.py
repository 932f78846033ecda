"""The paper's tables from stores, ours beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Difference, Share
from robustdeq.report import paper
from robustdeq.report.differences import differences
from robustdeq.report.numbers import (
    autoattack,
    because,
    clean,
    limited,
    lower,
    minimum,
    origin,
    ready,
    under,
    union_of_all,
    who,
)
from robustdeq.report.seeds import seeds
from robustdeq.report.sources import Result, Sources, budget
from robustdeq.report.table import APART, NONE, Cell, Table, number, points, published, share
from robustdeq.report.transfer import table_3

Say = Callable[[str], None]
WHO = ("store", "training", "method")
PAIRS = tuple(paper.TABLE_4["pgd"])
TABLE_1 = ("clean", "PGD", "AA", "PGD, AA", "union", "paper: clean", "paper: PGD", "paper: AA", "comparable")
BOUND = (
    "<= marks an upper bound: attacks of that store are unfinished and may lower the number. What is missing stands at "
    "the end, with the command that goes on."
)
OBLIVIOUS = (
    "attacked obliviously: the attacks were made against the undefended model, and the defended one was shown their "
    "images. For the grid that is what the paper does. It has no AA of its own, and its union is over images that "
    "were made for another model: an upper bound that attacks on the defence itself may lower."
)


def silent(words: str) -> None:
    """Tell nobody."""


def make_tables(sources: Sources, say: Say = silent) -> list[Table]:
    """Every table that the results allow."""
    everything, main = sources.results, sources.main
    makers: list[tuple[Callable[[list[Result]], Table | None], list[Result]]] = [
        (table_1, main),
        (table_1_in_part, sources.aside),
        (table_2, everything),
        (table_3, everything),
        (table_4, everything),
        (table_5, everything),
        (tables_6_and_7, main),
        (table_8, main),
        (states, main),
        (differences, everything),
        (seeds, everything),
        (audits, everything),
        (every_attack, everything),
    ]
    made = []
    for k, (make, results) in enumerate(makers, 1):
        if results:
            say(f"table {k} of {len(makers)} from {len(results)} results")
            made.append(make(results))
    return [_pruned(table) for table in made if table is not None and table.rows]


def table_1_in_part(results: list[Result]) -> Table:
    """Those that had a part of the grid, where others had all of it."""
    whole = table_1(results)
    note = "A part of the grid, such as its strongest attacks, or none of it: Tables 6 to 8 and the states are without."
    title = "Table 1, in part. Accuracy (%) on clean images and under a part of the grid, or none of it"
    return replace(whole, name="table-1-in-part", title=title, notes=(note, *whole.notes))


def table_1(results: list[Result]) -> Table:
    """Accuracies by what counts as robust."""
    rows = []
    for r in results:
        reasons = r.differences_from_the_paper()
        theirs = paper.TABLE_1.get((r.training, r.method), (None, None, None))
        worst, aa = minimum(r), autoattack(r)
        ours = [clean(r), worst, aa, lower(worst, aa), union_of_all(r)]
        beside = [published(v, "Table 1", comparable=not reasons) for v in theirs]
        rows.append([*who(r), *map(Cell, (r.model, r.data.name, str(r.data.images), r.eps)), *ours, *beside])
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
            *([OBLIVIOUS] if any(r.oblivious for r in results) else []),
            *([_limited(results)] if any(limited(r) for r in results) else []),
            APART,
        ),
    )


def _limited(results: list[Result]) -> str:
    """Which attacks were meant for some of the images only."""
    found = [(r, name, count) for r in results for name, count in limited(r).items()]
    cases = ", ".join(f"{name} on the first {count} of {r.name}" for r, name, count in found)
    aa = any(r.store.manifest.attacks[name].spec.is_standard_autoattack for r, name, _ in found)
    words = " Such an AA is over these images, PGD beside it over all." if aa else ""
    return f"Attacks on some of the images: {cases}. The union counts them where they were run.{words}"


def table_2(results: list[Result]) -> Table:
    """The ready-made attack beside the worst intermediate one."""
    rows = []
    for r in results:
        final, worst = ready(r), minimum(r)
        if not r.dynamic or final is NONE or worst is NONE:
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


def table_4(results: list[Result]) -> Table:
    """The strongest pairs under other searches."""
    rows = []
    for r in results:
        attacks = r.store.manifest.attacks
        if r.predictor != "deployed" or not any(config.spec.group == "table4" for config in attacks.values()):
            continue
        reasons = r.differences_from_the_paper()
        same = (r.training, r.method) == ("TRADES", paper.BOTH)
        for search in ("pgd", "apgd", "square"):
            cells = [under(r, f"{search}-i{i}-K{k}-l0.5") for i, k in PAIRS]
            squares = [name for name, config in attacks.items() if config.spec.attack == "square"]
            anywhere = under(r, squares[0]) if search == "square" and squares else NONE
            rows.append([*who(r), Cell(f"{search}, ours"), *cells, anywhere, because(r, reasons)])
            if same:
                theirs = [published(v, "Table 4", comparable=not reasons) for v in paper.TABLE_4[search].values()]
                rows.append([*who(r), Cell(f"{search}, paper"), *theirs, NONE, because(r, reasons)])
    head = (*WHO, "search", *(f"({i}, {k})" for i, k in PAIRS), "no pair", "comparable")
    title = "Table 4. Accuracy (%) at the strongest (i, K_a) under PGD, APGD-CE and Square (that on up to 1,000 images)"
    note = (
        "no pair: Square sees what the deployed predictor answers and no gradient, so it depends on no (i, K_a): "
        "one value. The paper's differs by pair because it steers by the surrogate's answers."
    )
    return Table("table-4", title, head, rows, (note, APART))


def table_5(results: list[Result]) -> Table:
    """Settings of the entropy reduction, under attacks with gradients of the undefended model."""
    rows = []
    for r in results:
        if r.predictor != "deployed" or not r.complete(r.oblivious_grid):
            continue
        names = len(r.oblivious_grid)
        for row in metrics.by_setting(r.store).sort("variant", "every", "steps", "predictor").iter_rows(named=True):
            one = Result(r.label, r.store, row["predictor"])
            reasons = one.differences_from_the_paper()
            same = (one.training, one.method) == ("TRADES", paper.BOTH)
            theirs = paper.TABLE_5.get((row["every"], row["steps"])) if same else None
            found = Share(row["accuracy"], row["low"], row["high"], row["images"])
            rows.append(
                [
                    *(Cell(word) for word in (one.name, one.training, one.method, row["variant"])),
                    *(Cell(str(row[key])) for key in ("every", "steps")),
                    share(found, origin(one, "grid", f"minimum over {names} attacks of the share without success")),
                    published(theirs, "Table 5", comparable=not reasons),
                    because(one, reasons),
                ]
            )
    head = (*WHO, "variant", "T_f", "R", "PGD", "paper", "comparable")
    title = "Table 5. Worst PGD accuracy (%) by settings of the entropy reduction"
    note = "PGD: oblivious, so that the images are the same for all settings of a model."
    return Table("table-5", title, head, rows, (note, APART))


def tables_6_and_7(results: list[Result]) -> Table:
    """How attacks move the entropy."""
    rows = []
    for r in results:
        names = r.grid
        if not r.complete(names) or r.entropy is not None:
            continue
        change = metrics.entropy_change(r.store, names, predictor=r.predictor)
        reasons = r.differences_from_the_paper()
        where = origin(r, f"clean and {len(names)} attacks of the grid", "entropy, image by image")
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
    states = max((r.states for r in results), default=0)
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


def states(results: list[Result]) -> Table:
    """The predictors at the states that the paper's "last but one" may mean, and at the final one."""
    rows = []
    for r in results:
        manifest, names = r.store.manifest, r.minimum_attacks
        if not r.dynamic or not manifest.all_states or not r.complete(names):
            continue
        for state in manifest.predictors[r.predictor].states[-3:]:
            where = f"store {r.label}: predictor {r.predictor}, state {state}"
            clean = metrics.clean_accuracy(r.store, predictor=r.predictor, state=state)
            found = metrics.accuracy(r.store, names, predictor=r.predictor, state=state)
            lowest = found.sort("accuracy").row(0, named=True)
            worst = Share(lowest["accuracy"], lowest["low"], lowest["high"], lowest["images"])
            called = state if state == "final" else f"z^[{state}]"
            rows.append(
                [
                    *who(r),
                    Cell(called),
                    share(clean, f"{where}; clean, share with correct"),
                    share(worst, f"{where}; {lowest['attack']}, the lowest of {len(names)} attacks"),
                ]
            )
    note = (
        "The paper predicts from the last state but one: h(z^[8]) if the unrolled final state is the last, h(z^[7]) if "
        "z^[8] is. PGD: the minimum over the grid, whose attacks are judged at each state anew; the interval is the "
        "strongest attack's alone."
    )
    return Table("states", "The state that predicts. Accuracy (%)", (*WHO, "state", "clean", "PGD"), rows, (note,))


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
        gain = found.get("gain")  # audits by earlier versions have none
        gained = points(Difference(**gain), f"{where}, gain") if gain else NONE
        rows.append([*who(r), Cell(", ".join(r.suites)), *shares, gained, *costs, Cell(found["verdict"]), Cell(flags)])
    accuracies = ("clean", "union", "base: clean", "base: union", "gain")
    head = (*WHO, "suite", *accuracies, "cost", "base: cost", "verdict", "flags")
    note = (
        "gain: union less that of the static base, in points, paired image by image; cost: the arithmetic of a "
        "prediction, in evaluations of f. Verdicts and flags are explained in docs/audit.md."
    )
    return Table("audit", "Audits. Accuracy (%) under everything a reviewer would try", head, rows, (note,))


def every_attack(results: list[Result]) -> Table:
    """What was run besides the grid."""
    rows = []
    for r in results:
        for name, config in ((n, a.spec) for n, a in r.store.manifest.attacks.items()):
            if config.in_grid:
                continue
            cell = under(r, name)
            settings = {**config.options, **config.oracle_options}
            told = ", ".join(f"{k} {budget(v) if k == 'step_size' else v}" for k, v in settings.items())
            kind = f"{config.attack} / {config.oracle}"
            words = (r.name, name, config.group, kind, budget(config.eps), told)
            rows.append([*map(Cell, words), cell])
    head = ("store", "attack", "group", "search / oracle", "eps", "settings", "accuracy")
    return Table("attacks", "Every other attack in the stores (%)", head, rows)


def _pruned(table: Table) -> Table:
    """Without columns for the paper's numbers where it has none, and with the words that its marks need."""
    empty = {
        k
        for k, name in enumerate(table.head)
        if name.startswith("paper") and all(row[k].kind == "none" for row in table.rows)
    }
    beside = any(name.startswith("paper") and k not in empty for k, name in enumerate(table.head))
    beside = beside or any(cell.kind in ("paper", "apart") for row in table.rows for cell in row)
    bounds = any(cell.kind == "bound" for row in table.rows for cell in row)
    keep = [k for k, name in enumerate(table.head) if k not in empty and (beside or name != "comparable")]
    return replace(
        table,
        head=[table.head[k] for k in keep],
        rows=[[row[k] for k in keep] for row in table.rows],
        notes=[*(note for note in table.notes if beside or note != APART), *([BOUND] if bounds else [])],
    )


def _spread(values: pl.Series) -> tuple[float, float, float]:
    floats: list[Any] = [values.mean(), values.min(), values.max()]
    return float(floats[0]), float(floats[1]), float(floats[2])
