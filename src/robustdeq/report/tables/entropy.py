"""Tables 6 and 7: how attacks change the entropy of the prediction."""

from __future__ import annotations

from typing import Any

import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, grid
from robustdeq.report.results.match import paper_row
from robustdeq.report.tables.numbers import WHO, because, beside, origin, who
from robustdeq.report.tables.table import APART, Table, number


def tables_6_and_7(results: list[Result]) -> Table:
    """How often and by how much attacks raise the entropy of undefended models, over the grid."""
    rows = []
    for r in (r for r in results if r.entropy is None and complete(r, grid(r))):
        change = metrics.entropy_change(r.store, grid(r), predictor=r.predictor)
        where = origin(r, f"clean and {len(grid(r))} attacks of the grid", "entropy, image by image")
        shares = [number(100 * v, where) for v in _spread(change["share"])]
        differences = [number(v, where, digits=4) for v in _spread(-change["difference"])]
        theirs = beside(r, paper.TABLE_6.get(paper_row(r), (None,) * 3), "Table 6")
        theirs += beside(r, paper.TABLE_7.get(paper_row(r), (None,) * 3), "Table 7", digits=4)
        rows.append([*who(r), *shares, *differences, *theirs, because(r)])
    columns = [f"{whose}{what}, {v}" for whose in ("", "paper: ") for what in ("P", "dH") for v in _SPREAD]
    note = (
        "P: share (%) of images whose clean entropy is lower than the attacked one. "
        "dH: mean of clean minus attacked entropy, nats."
    )
    title = "Tables 6 and 7. Prediction entropy, clean and attacked, over the grid"
    return Table("table-6-7", title, (*WHO, *columns, "comparable"), rows, (note, APART))


_SPREAD = ("mean", "lowest", "highest")


def _spread(values: pl.Series) -> list[float]:
    found: list[Any] = [values.mean(), values.min(), values.max()]
    return [float(value) for value in found]
