"""The tables of a report: the paper's, ours beside the published numbers, and further ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from robustdeq.report.results import Result, Sources
from robustdeq.report.results.benchmarks import Benchmark
from robustdeq.report.tables.accuracies import other_attacks, states, table_1, table_1_in_part, table_2
from robustdeq.report.tables.audits import audits, flags
from robustdeq.report.tables.differences import differences
from robustdeq.report.tables.grid import table_4, table_8, tables_6_and_7
from robustdeq.report.tables.seeds import seeds
from robustdeq.report.tables.settings import table_5
from robustdeq.report.tables.speed import table_9, table_10
from robustdeq.report.tables.table import Table, pruned
from robustdeq.report.tables.transfer import table_3

Say = Callable[[str], None]
"""Takes a line of progress."""

__all__ = ["Say", "Table", "make_tables"]


def make_tables(sources: Sources, say: Say = lambda words: None) -> list[Table]:
    """Every table that the results allow."""
    everything, main, timed = sources.results, sources.main, sources.benchmarks
    makers: list[tuple[Callable[[Any], Table | None], Sequence[Result | Benchmark]]] = [
        (table_1, main),
        (table_1_in_part, sources.aside),
        (table_2, everything),
        (table_3, everything),
        (table_4, everything),
        (table_5, everything),
        (tables_6_and_7, main),
        (table_8, main),
        (table_9, timed),
        (table_10, timed),
        (states, main),
        (differences, everything),
        (seeds, everything),
        (audits, everything),
        (flags, everything),
        (other_attacks, everything),
    ]
    made = []
    for k, (make, results) in enumerate(makers, 1):
        if results:
            say(f"table {k} of {len(makers)} from {len(results)} sources")
            made.append(make(results))
    return [pruned(table) for table in made if table is not None and table.rows]
