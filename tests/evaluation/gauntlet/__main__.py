"""Writes the gauntlet's table: python -m tests.evaluation.gauntlet docs/gauntlet.md."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from robustdeq.evaluation.analysis.statistics import Difference, Share
from robustdeq.evaluation.audit.flags import Flag
from tests.evaluation.gauntlet.cases import BUDGET, CASES, Case
from tests.evaluation.gauntlet.models import EPS

BEGIN, END = "<!-- table: python -m tests.evaluation.gauntlet docs/gauntlet.md -->", "<!-- end of the table -->"


def main(page: Path) -> None:
    """Replace the table of the page."""
    before, rest = page.read_text().split(BEGIN)
    rows = []
    for case in sorted(CASES, key=lambda case: case.gain):
        rows.append(row(case))
        print(rows[-1], flush=True)  # noqa: T201
    head = "| predictor | base | images | clean | union | gain in points | verdict | flags raised |"
    told = f"Radius {EPS:g} (Linf); {BUDGET.steps} steps of PGD, {BUDGET.search} of APGD, two rounds of escalation."
    table = "\n".join([head, "|---|---|---|---|---|---|---|---|", *rows])
    page.write_text(f"{before}{BEGIN}\n\n{told}\n\n{table}\n\n{END}{rest.split(END)[1]}")


def row(case: Case) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        found = case.audit(Path(folder) / "store").audit
    assert found is not None
    cells = [
        case.words,
        case.base.__name__.replace("_", " ") if case.base else "-",
        str(found.clean.images),
        shown(found.clean),
        shown(found.union),
        "-" if found.gain is None else shown(found.gain),
        f"**{found.verdict}**",
        "; ".join(map(measured, found.raised)) or "none",
    ]
    return f"| {' | '.join(cells)} |"


def shown(value: Share | Difference) -> str:
    """Percent, with the interval."""
    sign = "+" if isinstance(value, Difference) else ""
    return f"{100 * value.value:{sign}.1f} [{100 * value.low:{sign}.1f}, {100 * value.high:{sign}.1f}]"


def measured(flag: Flag) -> str:
    """A flag with what was measured."""
    return f"{flag.name} {100 * flag.value:.0f} [{100 * flag.low:.0f}, {100 * flag.high:.0f}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
