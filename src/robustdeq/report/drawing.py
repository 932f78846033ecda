"""Figures as SVG that takes the page's colour, the same bytes for the same numbers."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

INK = "#010203"
"""Stands for the page's own text colour, and is replaced by it."""
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


@dataclass(frozen=True)
class Figure:
    """An inline SVG, and in words what it shows."""

    name: str
    title: str
    alt: str
    svg: str
    where: str = ""
    wide: bool = False
    """Panels side by side, which a phone scrolls in their own box."""


def draw(
    name: str,
    title: str,
    alt: str,
    paint: Callable[..., None],
    *,
    panels: int = 1,
    width: float = 5.2,
    height: float = 3.2,
    where: str = "",
) -> Figure:
    """A figure of side-by-side panels; `paint` gets their axes, one by one."""
    import matplotlib as mpl  # slow to import, and every command would wait for it
    from cycler import cycler
    from matplotlib.figure import Figure as Canvas

    style: Any = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS), "svg.hashsalt": name}
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(width, height))
        axes = [canvas.add_subplot(1, panels, k + 1) for k in range(panels)]
        paint(*axes)
        # fixed margins: a layout engine measures every text of the figure, which doubles the time of drawing it
        left, right, bottom, top = MARGINS
        top += TITLE if any(panel.get_title() for panel in axes) else 0
        room = (width - left - right - (panels - 1) * GAP) / panels
        canvas.subplots_adjust(
            left=left / width,
            right=1 - right / width,
            bottom=bottom / height,
            top=1 - top / height,
            wspace=GAP / room,
        )
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Figure(name, title, alt, _clean(buffer.getvalue(), title, alt), where, panels > 1)


def _clean(svg: str, title: str, alt: str) -> str:
    """One element without prologue and unused ids, coloured by the page, with its words inside."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)
    svg = svg.replace(INK, "currentColor")
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    words = f"<title>{escape(title)}</title><desc>{escape(alt)}</desc>"
    svg = re.sub(
        r"(<svg [^>]*)>", rf'\1 role="img" aria-label="{escape(alt)}">' + words.replace("\\", r"\\"), svg, count=1
    )
    return re.sub(r"[ \t]+\n", "\n", svg) + "\n"
