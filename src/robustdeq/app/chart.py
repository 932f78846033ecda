"""SVG by hand: shapes that take the page's colours, and axes. Elements with `data-at` follow the slider."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

STYLE = """
.rdq { --ink: #1c2430; --soft: #5a6675; --page: #ffffff; --box: #f1f4f7; --line: #d5dbe2; --wrong: #c62f4b;
  --clean: #2f7fc1; --attacked: #c96a08; --defended: #1f8f63; font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .rdq { --ink: #e4e8ee; --soft: #9aa6b4; --page: #14181e; --box: #1d232b;
  --line: #353d48; --wrong: #ee5a72; --clean: #64a9e8; --attacked: #f09a3e; --defended: #4cc394; } }
.rdq text { fill: var(--ink); } .rdq .soft { fill: var(--soft); } .rdq .c { fill: var(--c); }
.rdq .clean { --c: var(--clean); } .rdq .attacked { --c: var(--attacked); } .rdq .defended { --c: var(--defended); }
.rdq .grid { stroke: var(--line); stroke-width: 1; fill: none; } .rdq .at { pointer-events: none; }
.rdq .line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.rdq .dot { fill: var(--c); stroke: var(--page); stroke-width: 1; }
.rdq .cross { stroke: var(--wrong); stroke-width: 2.6; fill: none; stroke-linecap: round; }
.rdq .now { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 3 3; fill: none; }
.rdq .ring { stroke: var(--ink); stroke-width: 2; fill: none; }
.rdq image { image-rendering: pixelated; }
"""
"""The colours of light and dark pages; everything drawn stands in an element of class rdq."""
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 34, 34
Value = float | None


def svg(width: float, height: float, body: str, *, alt: str, alone: bool = False) -> str:
    """An SVG element; one that stands alone brings its colours and its ground along."""
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="rdq" viewBox="0 0 {width:g} {height:g}" role="img" '
    ground = f'<style>{STYLE}</style><rect width="100%" height="100%" rx="8" style="fill:var(--page)"/>'
    return f'{start}aria-label="{escape(alt)}">{ground if alone else ""}{body}</svg>'


def text(x: float, y: float, words: str, *, size: float = 12, kind: str = "", anchor: str = "start") -> str:
    """A line of text; `kind` is its class."""
    bold = ' font-weight="600"' if "bold" in kind else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}"{bold}>'
        f"{escape(words)}</text>"
    )


def cross(x: float, y: float, r: float = 4.5) -> str:
    """The mark of a wrong prediction."""
    return f'<path class="cross" d="M{x - r:.1f} {y - r:.1f}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}"/>'


def dot(x: float, y: float, r: float = 4) -> str:
    """The mark of a right prediction."""
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"/>'


def following(body: str, places: Sequence[tuple[float, float]], now: int) -> str:
    """A shape around (0, 0) that stands at the place of the slider's state."""
    at = ";".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[now]
    return f'<g class="at" data-at="{at}" transform="translate({x:.1f},{y:.1f})">{body}</g>'


class Chart:
    """Two axes, and what is drawn between them."""

    def __init__(
        self,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        log: bool = False,
        width: float = 420,
        height: float = 260,
        left: float = LEFT,
    ) -> None:
        self.width, self.height, self.title = width, height, title
        self.x, self.y, self.log = x, y, log
        self.box = (left, TOP, width - RIGHT, height - BOTTOM)
        self.parts = [text(4, 18, title, size=14, kind="bold")]

    def right(self, x: float) -> float:
        """Where a value of x lies."""
        low, high = self.x
        return self.box[0] + (x - low) / ((high - low) or 1) * (self.box[2] - self.box[0])

    def down(self, y: float) -> float:
        """Where a value of y lies."""
        (low, high), value = self.y, y
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(y, low))
        return self.box[3] - (value - low) / ((high - low) or 1) * (self.box[3] - self.box[1])

    def axes(self, ticks: Sequence[float], label: str, form: Callable[[float], str] = "{:g}".format) -> None:
        """Lines at values of y, and names of the states below."""
        left, _, right, bottom = self.box
        for value in ticks:
            y = self.down(value)
            self.parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
            self.parts.append(text(left - 6, y + 4, form(value), size=11, kind="soft", anchor="end"))
        for t in range(math.ceil(self.x[0]), math.floor(self.x[1]) + 1):
            self.parts.append(text(self.right(t), bottom + 16, f"{t}", size=11, kind="soft", anchor="middle"))
        self.parts.append(text(right, bottom + 31, label, size=11, kind="soft", anchor="end"))

    def line(self, xs: Sequence[float], ys: Sequence[Value], kind: str) -> None:
        """A line with gaps where there is no value."""
        path, drawing = "", False
        for x, y in zip(xs, ys, strict=False):
            path += "" if y is None else f"{'L' if drawing else 'M'}{self.right(x):.1f} {self.down(y):.1f}"
            drawing = y is not None
        self.parts.append(f'<path class="line {kind}" d="{path}"/>')

    def marks(self, xs: Sequence[float], ys: Sequence[Value], right: Sequence[bool], kind: str) -> None:
        """A dot where the prediction is right, a cross where it is wrong."""
        places = [(self.right(x), self.down(y), ok) for x, y, ok in zip(xs, ys, right, strict=False) if y is not None]
        marks = "".join(dot(x, y) if ok else cross(x, y) for x, y, ok in places)
        self.parts.append(f'<g class="{kind}">{marks}</g>')

    def now(self, states: int, now: int) -> None:
        """The line at the slider's state."""
        _, top, _, bottom = self.box
        places = [(self.right(t), 0.0) for t in range(1, states + 1)]
        self.parts.append(following(f'<path class="now" d="M0 {top}V{bottom}"/>', places, min(now, states - 1)))

    def body(self) -> str:
        """Everything, without the SVG element around it."""
        return "".join(self.parts)

    def svg(self, alt: str) -> str:
        """The chart as an SVG element."""
        return svg(self.width, self.height, self.body(), alt=f"{self.title}: {alt}")


def round_ticks(high: float, count: int = 4) -> list[float]:
    """0 and round numbers up to a value."""
    if not high > 0:
        return [0.0]
    raw = high / count
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * k for k in (1, 2, 2.5, 5, 10) if scale * k >= raw * 0.999)
    return [k * step for k in range(int(high / step * 1.001) + 1)]


def decades(low: float, high: float) -> list[float]:
    """At most six powers of ten that cover values above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last += first == last
    return [10.0**k for k in range(first, last + 1, max(1, -(-(last - first) // 6)))]
