"""A table that every format is made from; each number carries where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from robustdeq.evaluation.analysis.statistics import Difference, Share

Kind = Literal["text", "ours", "bound", "paper", "apart", "none"]
"""bound: a number of ours that unfinished attacks may lower. apart: one of the paper's that is not comparable with ours
beside it."""


@dataclass(frozen=True)
class Cell:
    """What is shown, and where it comes from."""

    text: str
    kind: Kind = "text"
    where: str = ""
    """Store, attack, filter and how they were reduced; for the paper its table."""
    small: str = ""
    """Shown small beneath: the 95% interval, which K_a, or how many attacks are done."""

    @property
    def shown(self) -> str:
        """The text with the mark of its kind."""
        return {"apart": f"({self.text})", "bound": f"<= {self.text}"}.get(self.kind, self.text)


@dataclass(frozen=True)
class Table:
    """Rows under a head."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())

    def numeric(self, column: int) -> bool:
        """Whether a column holds numbers only."""
        return all(row[column].kind != "text" for row in self.rows)


NONE = Cell("-", "none")
APART = "Numbers of the paper in brackets are not comparable with ours beside them; the last column says why."


def share(value: Share, where: str) -> Cell:
    """An accuracy in percent."""
    interval = f"{100 * value.low:.1f} to {100 * value.high:.1f}"
    return Cell(f"{100 * value.value:.2f}", "ours", f"{where}; {value.images} images", interval)


def bound(cell: Cell, done: int, planned: int) -> Cell:
    """A number that is over the attacks done so far: the others may lower it, so its interval says nothing."""
    return cell if done == planned else replace(cell, kind="bound", small=f"{done} of {planned} attacks")


def points(value: Difference, where: str) -> Cell:
    """A difference of accuracies in points, beside its 95% interval: without that it says little."""
    text = f"{100 * value.value:+.2f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
    return Cell(text, "ours", f"{where}; {value.images} images")


def number(value: float, where: str, *, digits: int = 2) -> Cell:
    """Another number of ours."""
    return Cell(f"{value:.{digits}f}", "ours", where)


def published(value: float | None, table: str, *, comparable: bool, digits: int = 2) -> Cell:
    """A number of the paper's."""
    if value is None:
        return NONE
    return Cell(f"{value:.{digits}f}", "paper" if comparable else "apart", f"paper, {table}")
