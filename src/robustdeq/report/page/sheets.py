"""Tables as the page shows them: without columns that say nothing, the paper's numbers one click away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robustdeq.report.page.cards import Card
from robustdeq.report.page.sentences import answer
from robustdeq.report.tables.table import NONE, Cell, Table

FEWEST = 2
"""Rows from which on a column that never changes says nothing."""
ABOUT = ("training", "method", "model", "data", "images", "eps")
"""Columns that describe a store; they follow its numbers, which a phone then shows first."""


@dataclass(frozen=True)
class Column:
    """A column that is shown."""

    place: int
    name: str
    number: bool
    beside: bool
    """Whether it holds numbers of the paper that ours cannot be compared with."""


@dataclass(frozen=True)
class Line:
    """A row, with what the filters look at."""

    models: str
    """Slugs of the models it is about, separated by spaces."""
    attack: str
    beside: bool
    cells: list[Cell]


@dataclass(frozen=True)
class Sheet:
    """A table on the page."""

    table: Table
    answer: str
    columns: list[Column]
    lines: list[Line]
    everywhere: str
    """What is the same in all rows, and therefore has no column."""

    @property
    def beside(self) -> bool:
        """Whether it has numbers of the paper that are one click away."""
        return any(column.beside for column in self.columns) or any(line.beside for line in self.lines)


def make_sheets(tables: list[Table], cards: list[Card]) -> list[Sheet]:
    """All tables for the page."""
    slugs = {r.label: card.slug for card in cards for r in card.results}
    return [_sheet(table, slugs) for table in tables]


def _sheet(table: Table, slugs: Mapping[str, str]) -> Sheet:
    columns, everywhere = [], []
    published = [row[0].text == NONE.text for row in table.rows]  # a row of the paper without a store
    comparable = any(
        cell.kind == "paper" for row, alone in zip(table.rows, published, strict=True) for cell in row if not alone
    )
    apart = [
        (alone and not comparable) or {cell.kind for cell in row} & {"ours", "bound", "apart"} == {"apart"}
        for row, alone in zip(table.rows, published, strict=True)
    ]
    for k, name in enumerate(table.head):
        cells = [row[k] for row, beside in zip(table.rows, apart, strict=True) if not beside]
        if all(cell.kind == "none" or not cell.text for cell in cells):
            continue
        words = {cell.text for cell in cells}
        if k and len(cells) >= FEWEST and len(words) == 1 and cells[0].kind == "text" and name != "comparable":
            everywhere.append(f"{name} {cells[0].text}")
            continue
        of_paper = name.startswith("paper") or name == "comparable"
        columns.append(Column(k, name, table.numeric(k), of_paper and not comparable))
    if table.head[0] == "store":
        columns.sort(key=lambda column: column.name in ABOUT)
    attack = table.head.index("attack") if "attack" in table.head else None
    lines = [
        Line(_models(row, slugs), "" if attack is None else row[attack].text, beside, list(row))
        for row, beside in zip(table.rows, apart, strict=True)
    ]
    return Sheet(table, answer(table), columns, lines, ", ".join(everywhere))


def _models(row: Sequence[Cell], slugs: Mapping[str, str]) -> str:
    """The models that the texts of a row name."""
    found = []
    for cell in row:
        if cell.kind == "text":
            found += [slug for label, slug in slugs.items() if _names(cell.text, label) and slug not in found]
    return " ".join(found)


def _names(text: str, label: str) -> bool:
    return text == label or text.startswith((f"{label} (", f"{label}: "))
