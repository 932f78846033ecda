"""A table, from which every format is written; each of its numbers says where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from robustdeq.evaluation.analysis.statistics import Difference, Share

Kind = Literal["text", "ours", "bound", "paper", "apart", "none"]
"""bound: a number of ours that attacks may lower which are unfinished, were run on the first images only, or
are of the grid and were not planned. apart: a number of the paper's that cannot be compared with ours beside it."""


@dataclass(frozen=True)
class Cell:
    """A text or number, and where it comes from."""

    text: str
    kind: Kind = "text"
    where: str = ""
    """Store, attack, filter and reduction of a number of ours; the table of a number of the paper's."""
    small: str = ""
    """Shown in small print beneath: the 95% interval, or how many attacks are done."""
    beside: str = ""
    """Shown after the text in every format: K_a, or the number of images if it is not that of the row."""

    @property
    def shown(self) -> str:
        """The text and what stands beside it, marked if it is a bound or cannot be compared."""
        text = f"{self.text}, {self.beside}" if self.beside else self.text
        return {"apart": f"({text})", "bound": f"<= {text}"}.get(self.kind, text)


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())

    def numeric(self, column: int) -> bool:
        """Whether a column holds only numbers."""
        return all(row[column].kind != "text" for row in self.rows)


NONE = Cell("-", "none")
APART = "Numbers of the paper in brackets are not comparable with ours beside them; the last column says why."
BOUND = (
    "<= marks an upper bound: attacks of that store may lower the number that are unfinished (what is missing stands "
    "at the end, with the command that goes on), that were run on the first images only, or, where their number stands "
    "beside it, that are of the grid and were not planned."
)


def share(value: Share, where: str) -> Cell:
    """An accuracy in percent."""
    interval = f"{100 * value.low:.1f} to {100 * value.high:.1f}"
    return Cell(f"{100 * value.value:.2f}", "ours", f"{where}; {value.images} images", interval)


def bound(cell: Cell, done: int, planned: int) -> Cell:
    """Mark a number as an upper bound while attacks are unfinished, which may lower it below its interval."""
    return cell if done == planned else replace(cell, kind="bound", small=f"{done} of {planned} attacks")


def points(value: Difference, where: str, *, of: int | None = None) -> Cell:
    """A difference of accuracies in percentage points, with its 95% interval, in a row about `of` images, if given."""
    text = f"{100 * value.value:+.2f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
    return Cell(text, "ours", f"{where}; {value.images} images", beside=fewer(value.images, of or value.images))


def fewer(images: int, of: int) -> str:
    """What stands beside a number over fewer images than the row is about; nothing if it is over all of them."""
    return "" if images == of else f"{images} images"


def number(value: float, where: str, *, digits: int = 2) -> Cell:
    """A number of ours that is not an accuracy."""
    return Cell(f"{value:.{digits}f}", "ours", where)


def published(value: float | None, table: str, *, comparable: bool, digits: int = 2) -> Cell:
    """A number of the paper's; none where the paper has none."""
    if value is None:
        return NONE
    return Cell(f"{value:.{digits}f}", "paper" if comparable else "apart", f"paper, {table}")


def pruned(table: Table) -> Table:
    """Drop columns and notes about the paper where it has no number, and explain bounds if there are any."""
    kinds = {cell.kind for row in table.rows for cell in row}
    empty = {
        k
        for k, name in enumerate(table.head)
        if name.startswith("paper") and all(row[k].kind == "none" for row in table.rows)
    }
    beside = bool(kinds & {"paper", "apart"})
    keep = [k for k, name in enumerate(table.head) if k not in empty and (beside or name != "comparable")]
    return replace(
        table,
        head=[table.head[k] for k in keep],
        rows=[[row[k] for k in keep] for row in table.rows],
        notes=[*(note for note in table.notes if beside or note != APART), *([BOUND] if "bound" in kinds else [])],
    )
