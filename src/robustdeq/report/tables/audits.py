"""What audits found: the verdict on a predictor beside its static base, and every flag with its interval."""

from __future__ import annotations

from robustdeq.evaluation.audit.flags import Flag
from robustdeq.evaluation.audit.judge import Audit, read_audit
from robustdeq.report.results import Result
from robustdeq.report.tables.numbers import WHO, who
from robustdeq.report.tables.table import NONE, Cell, Table, number, points, share

PLACE = "audit.json, judged again from the store"


def audited(results: list[Result]) -> list[tuple[Result, Audit]]:
    """The results with an audit, judged again from their stores."""
    found = [(r, read_audit(r.store)) for r in results if r.predictor == "deployed"]
    return [(r, audit) for r, audit in found if audit is not None]


def audits(results: list[Result]) -> Table:
    """One row per store with an audit."""
    rows = []
    for r, found in audited(results):
        where = f"store {r.label}: {PLACE}"
        shares = [
            NONE if value is None else share(value, f"{where}, {name}")
            for name, value in (
                ("clean", found.clean),
                ("union", found.union),
                ("base_clean", found.base_clean),
                ("base_union", found.base_union),
            )
        ]
        costs = [number(v, f"{where}, probes", digits=1) for v in (found.probes.cost, found.probes.base_cost)]
        gained = points(found.gain, f"{where}, gain") if found.gain else NONE
        states = [Cell(", ".join(flag.name for flag in flags) or "none") for flags in (found.raised, found.undecided)]
        verdict = Cell(found.verdict, where=where, small=found.reason)
        rows.append([*who(r), Cell(", ".join(r.manifest.suites)), *shares, gained, *costs, verdict, *states])
    accuracies = ("clean", "union", "base: clean", "base: union", "gain")
    head = (*WHO, "suite", *accuracies, "cost", "base: cost", "verdict", "flags raised", "flags undecided")
    note = (
        "gain: union less that of the static base, in points, paired image by image; cost: the arithmetic of a "
        "prediction, in evaluations of f. Verdicts and flags are explained in docs/audit.md."
    )
    return Table("audit", "Audits. Accuracy (%) under everything a reviewer would try", head, rows, (note,))


def flags(results: list[Result]) -> Table:
    """One row per flag of each audit."""
    rows = []
    for r, found in audited(results):
        where = f"store {r.label}: {PLACE}, flags"
        rows += [[*who(r), Cell(flag.name), *_measured(flag, where)] for flag in found.flags]
    head = (*WHO, "flag", "state", "measured", "limit", "images", "images that would decide", "means masking")
    note = (
        "A flag is raised when the 95% interval of what is measured (%) lies above the limit, cleared when it lies "
        "below, and undecided otherwise. docs/flags.md says what to do about each."
    )
    return Table("flags", "Flags of the audits", head, rows, (note,))


def _measured(flag: Flag, where: str) -> list[Cell]:
    interval = f"{100 * flag.low:.1f} to {100 * flag.high:.1f}"
    decides = "" if flag.state != "undecided" else "more would not" if flag.decides is None else str(flag.decides)
    return [
        Cell(flag.state, where=where),
        Cell(f"{100 * flag.value:.1f}", "ours", f"{where}; {flag.images} images", interval),
        Cell(f"{100 * flag.limit:g}"),
        Cell(str(flag.images)),
        Cell(decides or "-"),
        Cell("yes" if flag.masking else "no"),
    ]
