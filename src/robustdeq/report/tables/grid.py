"""Tables 4, 6, 7 and 8: the grid's strongest attacks, and how the grid changes the entropy of the prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, grid
from robustdeq.report.results.match import paper_row
from robustdeq.report.tables.numbers import WHO, because, beside, origin, under, who
from robustdeq.report.tables.table import APART, NONE, Cell, Table, number

PAIRS = tuple(paper.TABLE_4["pgd"])
"""The paper's strongest (i, K_a)."""
SEARCHES = ("pgd", "apgd", "square")
IN_PAPER = ("TRADES", paper.BOTH)
"""The only model of the paper's Tables 4 and 8."""


def table_4(results: list[Result]) -> Table:
    """Accuracy under PGD, APGD-CE and Square at the strongest pairs."""
    rows = []
    for r in (r for r in results if r.predictor == "deployed"):
        attacks = r.manifest.attacks
        squares = [name for name in metrics.whole_attacks(r.store) if attacks[name].spec.attack == "square"]
        ours = {search: [*(under(r, f"{search}-i{i}-K{k}-l0.5") for i, k in PAIRS), NONE] for search in SEARCHES}
        ours["square"][-1] = under(r, squares[0]) if squares else NONE
        if all(cell is NONE for search in ("apgd", "square") for cell in ours[search]):
            continue
        for search in SEARCHES:
            if any(cell is not NONE for cell in ours[search]):
                rows.append([*who(r), Cell(f"{search}, ours"), *ours[search], because(r)])
            if paper_row(r) == IN_PAPER:
                theirs = beside(r, paper.TABLE_4[search].values(), "Table 4")
                rows.append([*who(r), Cell(f"{search}, paper"), *theirs, NONE, because(r)])
    head = (*WHO, "search", *(f"({i}, {k})" for i, k in PAIRS), "no pair", "comparable")
    title = "Table 4. Accuracy (%) at the strongest (i, K_a) under PGD, APGD-CE and Square (that on up to 1,000 images)"
    note = (
        "no pair: Square sees what the deployed predictor answers and no gradient, so it depends on no (i, K_a): "
        "one value. The paper's differs by pair because it steers by the surrogate's answers."
    )
    return Table("table-4", title, head, rows, (note, APART))


def tables_6_and_7(results: list[Result]) -> Table:
    """How often and by how much attacks raise the entropy of undefended models, over the grid."""

    def spread(values: pl.Series) -> list[float]:
        found: list[Any] = [values.mean(), values.min(), values.max()]
        return [float(value) for value in found]

    rows, rounded = [], []
    for r in (r for r in results if r.entropy is None and complete(r, grid(r))):
        if metrics.entropies_are_rounded(r.store):
            rounded.append(r.label)
        change = metrics.entropy_change(r.store, grid(r), predictor=r.predictor)
        where = origin(r, f"clean and {len(grid(r))} attacks of the grid", "entropy, image by image")
        shares = [number(100 * v, where) for v in spread(change["share"])]
        ties = number(100 * spread(change["ties"])[0], where)
        differences = [number(v, where, digits=4) for v in spread(-change["difference"])]
        theirs = beside(r, paper.TABLE_6.get(paper_row(r), (None,) * 3), "Table 6")
        theirs += beside(r, paper.TABLE_7.get(paper_row(r), (None,) * 3), "Table 7", digits=4)
        rows.append([*who(r), *shares, ties, *differences, *theirs, because(r)])
    columns = [
        f"{whose}{what}, {v}"
        for whose in ("", "paper: ")
        for what in ("P", "dH")
        for v in ("mean", "lowest", "highest")
    ]
    columns.insert(3, "ties, mean")
    notes = [
        "P: share (%) of images whose clean entropy is lower than the attacked one. ties: share (%) of images whose "
        "two entropies are equal, which P does not count. dH: mean of clean minus attacked entropy, nats.",
    ]
    if rounded:
        notes.append(
            f"Stores with entropies rounded to three significant digits: {', '.join(rounded)}. Some of their ties were "
            "none before: P lies between its number and that plus the ties."
        )
    title = "Tables 6 and 7. Prediction entropy, clean and attacked, over the grid"
    return Table("table-6-7", title, (*WHO, *columns, "comparable"), rows, (*notes, APART))


def table_8(results: list[Result]) -> Table:
    """Accuracy under the strongest unrolling K_a at each state."""
    rows: list[list[Cell]] = []
    states = max((r.states for r in results), default=0)
    for r in (r for r in results if complete(r, grid(r))):
        table = metrics.strongest_by_state(r.store, predictor=r.predictor).filter(pl.col("attack").is_in(grid(r)))
        for (aware, damping), found in table.group_by("aware", "damping", maintain_order=True):
            cells = [NONE] * states
            for row in found.iter_rows(named=True):
                cells[row["i"] - 1] = replace(under(r, row["attack"]), beside=f"K_a {row['K']}")
            attacker = [*who(r), Cell("aware" if aware else "oblivious"), Cell(f"{damping:g}")]
            rows.append([*attacker, Cell("ours"), *cells, because(r)])
            if paper_row(r) == IN_PAPER and not aware and damping in paper.TABLE_8:
                unrollings, values = zip(*paper.TABLE_8[damping], strict=True)
                published = zip(beside(r, values, "Table 8"), unrollings, strict=True)
                theirs = [replace(cell, beside=f"K_a {k}") for cell, k in published]
                theirs += [NONE] * (states - len(theirs))
                rows.append([*attacker, Cell("paper"), *theirs, because(r)])
    head = (*WHO, "attacker", "lambda", "whose", *(f"i = {i}" for i in range(1, states + 1)), "comparable")
    return Table("table-8", "Table 8. Accuracy (%) under the strongest K_a at each state", head, rows, (APART,))
