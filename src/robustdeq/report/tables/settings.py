"""Table 5: accuracy by the settings of the entropy reduction, T_f in the rows and R in the columns."""

from __future__ import annotations

import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, oblivious_grid
from robustdeq.report.results.match import paper_row
from robustdeq.report.tables.numbers import WHO, because, beside, origin
from robustdeq.report.tables.table import APART, NONE, Cell, Table, share


def table_5(results: list[Result]) -> Table:
    """The lowest accuracy under the oblivious grid, for every store that scored several settings of one variant."""
    rows: list[list[Cell]] = []
    stores = [r for r in results if r.predictor == "deployed" and complete(r, oblivious_grid(r))]
    found = [(r, variant, table) for r in stores for (variant,), table in _by_variant(r) if len(table) > 1]
    columns = sorted({steps for _, _, table in found for steps in table["steps"]})
    for r, variant, table in found:
        attacks = len(oblivious_grid(r))
        for (every,), settings in table.group_by("every", maintain_order=True):
            ours: dict[int, Cell] = {}
            for row in settings.iter_rows(named=True):
                one = Result(r.label, r.store, row["predictor"])
                where = origin(one, "grid", f"minimum over {attacks} attacks of the share without success")
                ours[row["steps"]] = share(metrics.share_of(row), where)
            both = paper_row(one) == ("TRADES", paper.BOTH)
            published = [paper.TABLE_5.get((int(str(every)), steps)) if both else None for steps in columns]
            words = (r.label, one.training, one.method, str(variant), str(every))
            cells = [ours.get(steps, NONE) for steps in columns]
            rows.append([*map(Cell, words), *cells, *beside(one, published, "Table 5"), because(one)])
    head = (*WHO, "variant", "T_f", *(f"R = {n}" for n in columns), *(f"paper: R = {n}" for n in columns), "comparable")
    title = "Table 5. Worst PGD accuracy (%) by the settings T_f and R of the entropy reduction"
    note = "Attacked obliviously, so that the images are the same for all settings of a model."
    return Table("table-5", title, head, rows, (note, APART))


def _by_variant(r: Result) -> pl.dataframe.group_by.GroupBy:
    """The settings of a store by their variant, sorted by T_f and R."""
    return metrics.by_setting(r.store).sort("variant", "every", "steps").group_by("variant", maintain_order=True)
