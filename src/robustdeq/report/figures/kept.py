"""Pictures of the cases that were kept in the explorer."""

from __future__ import annotations

import base64
from html import escape

from robustdeq.report.figures.drawing import Figure, slug
from robustdeq.report.results.cases import KeptCase


def kept_case(case: KeptCase) -> Figure:
    """The case's own picture, as an image within the figure: its styles and whatever else it holds stay inside."""
    wide, high = case.size
    href = "data:image/svg+xml;base64," + base64.b64encode(case.svg.encode()).decode()
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img" '
        f'aria-label="{escape(case.said)}"><image width="{wide:g}" height="{high:g}" href="{href}"/></svg>\n'
    )
    return Figure(f"case-{slug(case.label)}", f"Kept: {case.title}", case.said, svg, case.command, wide=True)
