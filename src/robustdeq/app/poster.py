"""A view in one SVG that stands alone: for a talk, a README, a report."""

from __future__ import annotations

from collections.abc import Sequence

from robustdeq.app.chart import svg, text
from robustdeq.app.drawing import along, plane, said, strip_body
from robustdeq.app.views import View

EDGE, GAP = 14.0, 24.0


def poster(*views: tuple[View, Sequence[str]]) -> str:
    """Views below each other, each under sentences: images, strip and three charts."""
    parts, width, height = [], 0.0, 0.0
    for view, sentences in views:
        wide, tall, body = _body(view, sentences)
        parts.append(f'<g transform="translate(0,{height:g})">{body}</g>')
        width, height = max(width, wide), height + tall
    return svg(width, height, "".join(parts), alt=" ".join(said(view) for view, _ in views), alone=True) + "\n"


def _body(view: View, sentences: Sequence[str]) -> tuple[float, float, str]:
    parts, top = [], EDGE
    for k, sentence in enumerate(sentences):
        top += 22 if k else 16
        parts.append(text(EDGE, top, sentence, size=15 if k else 19, kind="" if k else "bold"))
    top += 8
    pictures = [(t.words, t.picture, t.name) for t in view.traces if t.name != "defended"]
    if view.perturbation is not None:
        pictures.insert(1, ("perturbation x16", view.perturbation, ""))
    if len(pictures) == 1:
        pictures = [("image", pictures[0][1], "")]
    size, y = 150.0 if len(pictures) == 1 else 118.0, top + GAP
    for words, picture, kind in pictures:
        parts.append(f'<g class="{kind}">{text(EDGE, y - 6, words, size=12, kind="c bold" if kind else "soft")}</g>')
        parts.append(f'<image x="{EDGE}" y="{y:g}" width="{size:g}" height="{size:g}" href="{picture}"/>')
        y += size + GAP
    left = EDGE + size + GAP
    wide, tall, body = strip_body(view)
    parts.append(f'<g transform="translate({left:g},{top:g})">{body}</g>')
    top += tall + EDGE
    drawn = dict(along(view)) if view.states else {}
    row = [drawn[name] for name in ("truth", "entropy") if name in drawn]
    row += [plane(view)] if view.plane is not None else [drawn[name] for name in ("residual",) if name in drawn]
    scale, x = (wide - 8) / max(sum(chart.width for chart in row), 1), left
    for chart in row:
        parts.append(f'<g transform="translate({x:g},{top:g}) scale({scale:.3f})">{chart.body()}</g>')
        x += chart.width * scale
    bottom = top + scale * max((chart.height for chart in row), default=0.0)
    return left + wide + 10, max(bottom, y) + 8, "".join(parts)
