"""Accuracy by the state that predictions are read from."""

from __future__ import annotations

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, minimum_attacks
from robustdeq.report.tables.numbers import WHO, who
from robustdeq.report.tables.table import Cell, Table, share


def states(results: list[Result]) -> Table:
    """The two states that the paper's "last but one" may mean, beside the final state."""
    rows = []
    for r in results:
        names = minimum_attacks(r)
        if not r.manifest.dynamic or not r.manifest.all_states or not complete(r, names):
            continue
        for state in r.record.states[-3:]:
            where = f"store {r.label}: predictor {r.predictor}, state {state}"
            clean = metrics.clean_accuracy(r.store, predictor=r.predictor, state=state)
            found = metrics.accuracy(r.store, names, predictor=r.predictor, state=state)
            lowest = found.sort("accuracy").row(0, named=True)
            worst = Share(lowest["accuracy"], lowest["low"], lowest["high"], lowest["images"])
            cells = [
                Cell(state if state == "final" else f"z^[{state}]"),
                share(clean, f"{where}; clean, share with correct"),
                share(worst, f"{where}; {lowest['attack']}, the lowest of {len(names)} attacks"),
            ]
            rows.append([*who(r), *cells])
    note = (
        "The paper predicts from the last state but one: h(z^[8]) if the unrolled final state is the last, h(z^[7]) if "
        "z^[8] is. PGD: the minimum over the grid, whose attacks are judged at each state anew; the interval is the "
        "strongest attack's alone."
    )
    return Table("states", "The state that predicts. Accuracy (%)", (*WHO, "state", "clean", "PGD"), rows, (note,))
