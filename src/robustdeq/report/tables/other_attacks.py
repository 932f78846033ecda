"""The attacks outside the grid, one row each."""

from __future__ import annotations

from robustdeq.report.results import Result
from robustdeq.report.results.describe import budget
from robustdeq.report.tables.numbers import under
from robustdeq.report.tables.table import Cell, Table


def other_attacks(results: list[Result]) -> Table:
    """Accuracy under each attack outside the grid, with its settings."""
    rows = []
    for r in results:
        for name, record in r.manifest.attacks.items():
            spec = record.spec
            if spec.in_grid:
                continue
            settings = {**spec.options, **spec.oracle_options}
            told = ", ".join(f"{k} {budget(v) if k == 'step_size' else v}" for k, v in settings.items())
            words = (r.name, name, spec.group, f"{spec.attack} / {spec.oracle}", budget(spec.eps), told)
            rows.append([*map(Cell, words), under(r, name)])
    head = ("store", "attack", "group", "search / oracle", "eps", "settings", "accuracy")
    return Table("attacks", "Every other attack in the stores (%)", head, rows)
