"""What audits found: the verdict on a defended model beside its static base."""

from __future__ import annotations

import json

from robustdeq.evaluation.analysis.statistics import Difference, Share
from robustdeq.report.results import Result
from robustdeq.report.tables.numbers import WHO, who
from robustdeq.report.tables.table import NONE, Cell, Table, number, points, share


def audits(results: list[Result]) -> Table:
    """One row per store with an audit.json."""
    rows = []
    for r in (r for r in results if r.predictor == "deployed"):
        path = r.store.folder / "audit.json"
        if not path.is_file():
            continue
        found = json.loads(path.read_bytes())
        where = f"store {r.label}: audit.json"
        shares = [
            share(Share(**found[key]), f"{where}, {key}") if found[key] else NONE
            for key in ("clean", "union", "base_clean", "base_union")
        ]
        costs = [number(found["probes"][key], f"{where}, probes.{key}", digits=1) for key in ("cost", "base_cost")]
        gain = found.get("gain")  # audits by earlier versions have none
        gained = points(Difference(**gain), f"{where}, gain") if gain else NONE
        flags = ", ".join(flag["name"] for flag in found["flags"]) or "none"
        suites = ", ".join(r.manifest.suites)
        rows.append([*who(r), Cell(suites), *shares, gained, *costs, Cell(found["verdict"]), Cell(flags)])
    accuracies = ("clean", "union", "base: clean", "base: union", "gain")
    head = (*WHO, "suite", *accuracies, "cost", "base: cost", "verdict", "flags")
    note = (
        "gain: union less that of the static base, in points, paired image by image; cost: the arithmetic of a "
        "prediction, in evaluations of f. Verdicts and flags are explained in docs/audit.md."
    )
    return Table("audit", "Audits. Accuracy (%) under everything a reviewer would try", head, rows, (note,))
