"""Table 3: accuracy on images that were made against another model."""

from __future__ import annotations

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.metrics import IncompleteError
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.match import differences_from_the_paper
from robustdeq.report.tables.numbers import because
from robustdeq.report.tables.table import APART, NONE, Cell, Table, bound, published, share


def table_3(results: list[Result]) -> Table | None:
    """The lowest accuracy of each model under the attacks made against each of the models."""
    whole = [r for r in results if r.predictor == "deployed" and r.manifest.dynamic and not r.manifest.union]
    by_label, stores = {r.label: r for r in whole}, {r.label: r.store for r in whole}
    try:
        matrix = metrics.transfer_matrix(stores)
    except IncompleteError:
        return None
    pairs = {(row["target"], row["source"]): row for row in matrix.iter_rows(named=True)}
    labels = sorted({label for pair in pairs if len({*pair}) > 1 for label in pair})
    if not labels:
        return None
    reasons = list(dict.fromkeys(why for label in labels for why in differences_from_the_paper(by_label[label])))

    def ours(target: str, source: str) -> Cell:
        row = pairs.get((target, source))
        if row is None:
            return NONE
        found = Share(row["accuracy"], row["low"], row["high"], by_label[target].manifest.data.images)
        what = f"minimum over {row['attacks']} attacks made against {source}"
        cell = share(found, f"store {target}: predictor deployed, deployed state; {what}")
        return bound(cell, row["attacks"], len(metrics.shown_from(stores[source], stores[target])))

    rows = []
    for target in labels:
        r, cells = by_label[target], [ours(target, source) for source in labels]
        for other in (by_label[source] for source in labels):
            trades = r.training == other.training == "TRADES"
            value = paper.TABLE_3.get((r.method, other.method)) if trades else None
            cells.append(published(value, "Table 3", comparable=not reasons))
        rows.append([Cell(target), Cell(r.method), *cells, because(r, reasons)])
    columns = [f"{whose}{label}" for whose in ("from ", "paper: ") for label in labels]
    head = ("target", "method", *columns, "comparable")
    note = (
        "A row is a model, a column the model that the attacks were made against; the diagonal is a model's own grid. "
        "Of a defended model attacked with --aware that is both kinds, and others are shown the aware images alone: "
        "the oblivious ones are its base's. Stores that share no images are left out."
    )
    title = "Table 3. Transfer: lowest accuracy (%) under attacks made against another"
    return Table("table-3", title, head, rows, (note, APART))
