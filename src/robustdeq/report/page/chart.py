"""The chart of the first screen: accuracy by attack strength, one line per predictor, with 95% intervals."""

from __future__ import annotations

from dataclasses import dataclass

from robustdeq.report.page.cards import Card, Row
from robustdeq.report.page.measures import STRENGTHS, measured

COLOURS = 8
"""Number of colours of page.css; lines beyond repeat them dashed."""
LABELS = {
    "clean": "clean",
    "PGD-10": "PGD-10",
    "strongest attack": "strongest",
    "AutoAttack": "AutoAttack",
    "union": "union",
}
STEP = 10
"""Percent between two lines of the grid."""


@dataclass(frozen=True)
class Point:
    """A number of the chart, in pixels, with its words."""

    x: float
    y: float
    low: float
    high: float
    said: str
    attack: str


@dataclass(frozen=True)
class Line:
    """The numbers of a predictor."""

    slug: str
    colour: int
    dashed: bool
    label: str
    points: list[Point]

    @property
    def path(self) -> str:
        """The line through the points as an SVG path."""
        return "M" + "L".join(f"{p.x:.1f},{p.y:.1f}" for p in self.points)


@dataclass(frozen=True)
class Chart:
    """A drawing of a width; pages hold one for wide screens and one for phones."""

    kind: str
    width: int
    height: int
    left: int
    right: int
    ticks: list[tuple[float, str]]
    columns: list[tuple[float, str]]
    lines: list[Line]
    alt: str


def charts(cards: list[Card]) -> list[Chart]:
    """The chart for wide screens and the one for phones; none without numbers."""
    series = [(k, card, row) for k, card in enumerate(cards) for row in card.rows]
    if not any(m.share for _, _, row in series for m in measured(row.result).values()):
        return []
    return [_chart("wide", series, 960, 380), _chart("narrow", series, 358, 340)]


def _chart(kind: str, series: list[tuple[int, Card, Row]], width: int, height: int) -> Chart:
    left, right, top, bottom = 34, 8, 10, 30
    shares = [m.share for _, _, row in series for m in measured(row.result).values() if m.share]
    highest = min(100, STEP * -(-int(100 * max(share.high for share in shares) + 1) // STEP))
    names = [name for name in STRENGTHS if any(measured(row.result)[name].share for _, _, row in series)]
    room = (width - left - right) / len(names)

    def at(value: float) -> float:
        return top + (height - top - bottom) * (1 - 100 * value / highest)

    lines = []
    for n, (k, card, row) in enumerate(series):
        shift = (n - (len(series) - 1) / 2) * min(14.0, 0.72 * room / len(series))
        points = []
        for column, name in enumerate(names):
            m = measured(row.result)[name]
            if m.share is not None:
                said = f"{_called(card, row)}, {name}: {m.value} % [{m.interval}]{f'; {m.said}' if m.said else ''}"
                x = left + (column + 0.5) * room + shift
                points.append(Point(x, at(m.share.value), at(m.share.low), at(m.share.high), said, name))
        dashed = row is not card.rows[0] or k >= COLOURS
        lines.append(Line(card.slug, k % COLOURS, dashed, _called(card, row), points))
    ticks = [(at(percent / 100), f"{percent}") for percent in range(0, highest + 1, STEP)]
    columns = [(left + (k + 0.5) * room, LABELS[name]) for k, name in enumerate(names)]
    said = "; ".join(f"{line.label}: " + ", ".join(p.said.split(", ", 1)[1] for p in line.points) for line in lines)
    alt = f"Accuracy in percent by attack strength, with 95% intervals. {said}."
    return Chart(kind, width, height, left, width - right, ticks, columns, [line for line in lines if line.points], alt)


def different_images(cards: list[Card]) -> str:
    """Which models of the chart have points that a defence around them has on another number of images; or nothing."""
    found = []
    for card in cards:
        shares = [{name: m.share for name, m in measured(row.result).items() if m.share} for row in card.rows]
        counts = [{name: share.images for name, share in own.items()} for own in shares]
        if any(len({own[name] for own in counts if name in own}) > 1 for name in STRENGTHS):
            said = (f"{row.result.label} {_span(own)}" for row, own in zip(card.rows, counts, strict=True) if own)
            found.append(", ".join(said))
    if not found:
        return ""
    return (
        "The points of a defence and of the model behind it are not over the same images, so that their heights do "
        f"not compare (the cards compare the unions on the same images): {'; '.join(found)} images."
    )


def _span(counts: dict[str, int]) -> str:
    """The least and the most images of a predictor's points."""
    low, high = min(counts.values()), max(counts.values())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _called(card: Card, row: Row) -> str:
    return card.name if row is card.rows[0] else f"{card.name}, {row.called}"
