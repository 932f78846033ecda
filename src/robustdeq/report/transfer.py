"""Table 3: images made against one model, shown to another."""

from __future__ import annotations

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.metrics import IncompleteError
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report import paper
from robustdeq.report.numbers import because
from robustdeq.report.sources import Result
from robustdeq.report.table import APART, NONE, Cell, Table, bound, published, share


def table_3(results: list[Result]) -> Table | None:
    """Transfer between the variants."""
    whole = [r for r in results if r.predictor == "deployed" and r.store.manifest.dynamic]
    stores = {r.label: r.store for r in whole if not r.store.manifest.union}
    by_label = {r.label: r for r in whole}
    try:
        matrix = metrics.transfer_matrix(stores)
    except IncompleteError:
        return None
    pairs = {(row["target"], row["source"]): row for row in matrix.iter_rows(named=True)}
    labels = sorted({label for pair in pairs if len({*pair}) > 1 for label in pair})
    if not labels:
        return None
    reasons = list(dict.fromkeys(why for label in labels for why in by_label[label].differences_from_the_paper()))
    rows = []
    for target in labels:
        cells = []
        for source in labels:
            row = pairs.get((target, source))
            if row is None:
                cells.append(NONE)
                continue
            found = Share(row["accuracy"], row["low"], row["high"], by_label[target].data.images)
            what = f"minimum over {row['attacks']} attacks made against {source}"
            cell = share(found, f"store {target}: predictor deployed, deployed state; {what}")
            cells.append(bound(cell, row["attacks"], len(metrics.shown_from(stores[source], stores[target]))))
        method = by_label[target]
        theirs = [_of_the_paper(method, by_label[source], comparable=not reasons) for source in labels]
        rows.append([Cell(target), Cell(method.method), *cells, *theirs, because(method, reasons)])
    columns = [f"{whose}{label}" for whose in ("from ", "paper: ") for label in labels]
    head = ("target", "method", *columns, "comparable")
    note = (
        "A row is a model, a column the model that the attacks were made against; the diagonal is a model's own grid. "
        "Of a defended model attacked with --aware that is both kinds, and others are shown the aware images alone: "
        "the oblivious ones are its base's. Stores that share no images are left out."
    )
    return Table(
        "table-3",
        "Table 3. Transfer: lowest accuracy (%) under attacks made against another",
        head,
        rows,
        (note, APART),
    )


def _of_the_paper(target: Result, source: Result, *, comparable: bool) -> Cell:
    if target.training != "TRADES" or source.training != "TRADES":
        return NONE
    return published(paper.TABLE_3.get((target.method, source.method)), "Table 3", comparable=comparable)
