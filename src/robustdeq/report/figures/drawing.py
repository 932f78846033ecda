"""Drawing figures as SVG: text takes the page's colour, and the same numbers give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import Any

INK = "#010203"
"""Placeholder that is replaced by the page's text colour."""
COLOURS = ("#2f7fc1", "#d9730d", "#2a9d6f", "#c2486b", "#7c5cc4", "#8a8a1f", "#1f8a94", "#9c6b4a")
"""Readable on white and on black."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
MARGINS = (0.72, 0.1, 0.5, 0.12)
"""Inches left, right, below and above the panels."""
GAP = 0.75
"""Inches between panels."""
TITLE = 0.22
"""Inches for the titles of panels."""
HEIGHT = 2.8
"""Inches of a figure without the legend above its lines."""


@dataclass(frozen=True)
class Figure:
    """An inline SVG, with a description in words."""

    name: str
    title: str
    alt: str
    svg: str
    where: str = ""
    wide: bool = False
    """Whether panels stand side by side, which a phone scrolls in a box of their own."""


def draw(
    name: str,
    title: str,
    alt: str,
    paint: Callable[..., None],
    *,
    panels: int = 1,
    width: float = 5.2,
    height: float = 3.2,
    margin: float = 0.0,
    where: str = "",
) -> Figure:
    """Draw panels side by side; `paint` is called with the axes of each panel as an argument.

    `margin` are further inches right of the panels, for a legend.
    """
    import matplotlib as mpl  # slow to import: only commands that draw wait for it
    from matplotlib.figure import Figure as Canvas
    from matplotlib.rcsetup import cycler

    style: Any = {**STYLE, "text.parse_math": False, "axes.prop_cycle": cycler(color=COLOURS), "svg.hashsalt": name}
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(width, height))
        axes = [canvas.add_subplot(1, panels, k + 1) for k in range(panels)]
        paint(*axes)
        # fixed margins: a layout engine measures every text, which doubles the drawing time
        left, right, bottom, top = MARGINS
        right += margin
        top += TITLE if any(panel.get_title() for panel in axes) else 0
        room = (width - left - right - (panels - 1) * GAP) / panels
        canvas.subplots_adjust(
            left=left / width, right=1 - right / width, bottom=bottom / height, top=1 - top / height, wspace=GAP / room
        )
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Figure(name, title, alt, _clean(buffer.getvalue(), title, alt), where, panels > 1)


def _clean(svg: str, title: str, alt: str) -> str:
    """One SVG element in the page's colour, with title and description, without prologue and unused ids."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)
    svg = svg.replace(INK, "currentColor")
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    words = f' role="img" aria-label="{escape(alt)}"><title>{escape(title)}</title><desc>{escape(alt)}</desc>'
    # by a function: in a template the backslashes of a name would be taken for escapes
    svg = re.sub(r"(<svg [^>]*)>", lambda start: start[1] + words, svg, count=1)
    return re.sub(r"[ \t]+\n", "\n", svg) + "\n"


def line_style(line: int) -> str:
    """Solid, and dashed once the colours repeat."""
    return "-" if line < len(COLOURS) else "--"


def legend_above(axes: Any, names: Collection[str]) -> None:
    """Put the legend above the lines, into `legend_room` by which the figure is higher, so that it covers no point."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) * legend_room(names) / (HEIGHT - MARGINS[2] - MARGINS[3]))
    axes.legend(fontsize=8, loc="upper left", ncol=_legend_columns(names))


def legend_room(names: Collection[str]) -> float:
    """Height of the legend in inches."""
    return 0.1 + 0.17 * -(-len(names) // _legend_columns(names))


def _legend_columns(names: Collection[str]) -> int:
    return 2 if max(map(len, names)) <= 24 else 1


def slug(name: str) -> str:
    """A name as part of a file name."""
    return "".join(c if c.isalnum() or c in "-+." else "-" for c in name)


def distinct(names: Iterable[str]) -> list[str]:
    """File names that differ in more than upper and lower case: of equal ones all but the first get a number."""
    wanted, taken = list(names), set[str]()
    free = {name.casefold() for name in wanted}  # a number must not make the name of another
    found = []
    for name in wanted:
        numbered = (f"{name}-{k}" for k in count(2))
        chosen = name
        if name.casefold() in taken:
            chosen = next(other for other in numbered if other.casefold() not in taken | free)
        taken.add(chosen.casefold())
        found.append(chosen)
    return found
