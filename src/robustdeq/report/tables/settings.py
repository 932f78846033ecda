"""Table 5: the settings of the entropy reduction."""

from __future__ import annotations

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, oblivious_grid
from robustdeq.report.results.match import paper_row
from robustdeq.report.tables.numbers import WHO, because, beside, origin
from robustdeq.report.tables.table import APART, Cell, Table, share


def table_5(results: list[Result]) -> Table:
    """Accuracy by T_f and R under attacks with gradients of the undefended model."""
    rows = []
    for r in results:
        attacks = oblivious_grid(r)
        if r.predictor != "deployed" or not complete(r, attacks):
            continue
        for row in metrics.by_setting(r.store).sort("variant", "every", "steps", "predictor").iter_rows(named=True):
            one = Result(r.label, r.store, row["predictor"])
            theirs = (
                paper.TABLE_5.get((row["every"], row["steps"])) if paper_row(one) == ("TRADES", paper.BOTH) else None
            )
            found = Share(row["accuracy"], row["low"], row["high"], row["images"])
            where = origin(one, "grid", f"minimum over {len(attacks)} attacks of the share without success")
            words = (one.name, one.training, one.method, row["variant"], str(row["every"]), str(row["steps"]))
            rows.append([*map(Cell, words), share(found, where), *beside(one, [theirs], "Table 5"), because(one)])
    head = (*WHO, "variant", "T_f", "R", "PGD", "paper", "comparable")
    title = "Table 5. Worst PGD accuracy (%) by settings of the entropy reduction"
    note = "PGD: oblivious, so that the images are the same for all settings of a model."
    return Table("table-5", title, head, rows, (note, APART))
