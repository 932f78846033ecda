"""The pictures of a view: which states are fooled, and what happens along them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

import numpy as np

from robustdeq.app.chart import RIGHT, Chart, cross, decades, dot, following, round_ticks, svg, text
from robustdeq.app.pictures import png_of, rgb
from robustdeq.app.views import ABSENT, Numbers, Trace, View

REGIONS = ("#9fb8d8", "#e3c28d", "#a9cfa4", "#d9a9b8", "#bfb0de", "#cfcf94", "#93cbcf", "#cfb3a0", "#8fb39b", "#e0b5e0")
"""Colours of the classes in the plane."""
SHADE = 0.55


def strip(view: View, *, tall: bool = False) -> str:
    """Which states are fooled: a cell for each pass and state; in the tall one states stand below each other."""
    width, height, body = strip_body(view, tall=tall)
    return svg(width, height, body, alt=said(view))


def strip_body(view: View, *, tall: bool = False) -> tuple[float, float, str]:
    """Width, height and shapes of the strip."""
    count, rows = len(view.columns), len(view.traces)
    cell, deep = (112.0, 44.0) if tall else ((860 - 150) / max(count, 4), 62.0)
    side, head = (40.0, 46.0) if tall else (150.0, 40.0)
    across, down = (rows, count) if tall else (count, rows)
    width, height = side + cell * across + 6, head + deep * down + (6 if tall else 22)
    parts = []

    def place(column: int, row: int) -> tuple[float, float]:
        return (side + cell * row, head + deep * column) if tall else (side + cell * column, head + deep * row)

    for k, name in enumerate(view.columns):
        x, y = place(k, 0)
        words = f"z[{name}]" if name.isdigit() else name
        if tall:
            parts.append(text(side - 6, y + deep / 2 + 4, words, size=12, kind="soft", anchor="end"))
        else:
            parts.append(text(x + cell / 2, head - 14, words, size=13, kind="soft", anchor="middle"))
    for row, trace in enumerate(view.traces):
        x, y = place(0, row)
        first, _, rest = trace.words.partition(", ")
        lines = [first, rest] if rest else [first]
        for k, line in enumerate(lines):
            if tall:
                parts.append(_named(x + cell / 2, head - 24 + 15 * k, line, trace.name, "middle", 13))
            else:
                parts.append(
                    _named(4, y + deep / 2 + 5 + 17 * (k - (len(lines) - 1) / 2), line, trace.name, "start", 14)
                )
        for column in range(count):
            parts.append(_cell(view, trace, column, *place(column, row), cell, deep))
    x, y = place(view.deployed, 0)
    size = (cell * rows, deep) if tall else (cell, deep * rows)
    parts.append(f'<rect class="ring" x="{x:.1f}" y="{y:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" rx="6"/>')
    if not tall:
        parts.append(text(x + cell / 2, height - 6, "deployed", size=12, kind="soft", anchor="middle"))
    if view.states:
        pointer = '<path class="c" style="fill:var(--ink)" d="M0 0l-6 -8h12z"/>'
        pointer = '<path style="fill:var(--ink)" d="M0 0l-8 -5v10z"/>' if tall else pointer
        ends = [place(k, 0) for k in range(view.states)]
        places = [(x + 2, y + deep / 2) if tall else (x + cell / 2, y + 1) for x, y in ends]
        parts.append(following(pointer, places, min(view.deployed, view.states - 1)))
    return width, height, "".join(parts)


def _named(x: float, y: float, words: str, kind: str, anchor: str, size: float) -> str:
    return f'<g class="{kind}">{text(x, y, words, size=size, kind="c bold", anchor=anchor)}</g>'


def _cell(view: View, trace: Trace, column: int, x: float, y: float, width: float, height: float) -> str:
    """One prediction: coloured like its pass where it is right, red with a cross where it is wrong."""
    right, confidence = trace.right(column, view.label), trace.confidence[column]
    if trace.prediction[column] == ABSENT:
        return ""
    colour = "var(--c)" if right else "var(--wrong)"
    strength = 0.16 + 0.5 * (confidence or 0) if right else 0.9
    share = "" if confidence is None else f"{confidence:.0%}"
    name = view.class_name(trace.prediction[column])
    middle, size = x + width / 2 + (0 if right else 7), min(14.0, 1.75 * (width - 18) / max(len(name), 4))
    ink = "" if right else ' style="fill:#fff"'
    body = (
        f'<rect x="{x + 2:.1f}" y="{y + 2:.1f}" width="{width - 4:.1f}" height="{height - 4:.1f}" rx="5" '
        f'style="fill:{colour};fill-opacity:{strength:.2f}"/>'
    )
    if not right:
        mark = cross(x + 14, y + height / 2 - 7, 3.6)
        body += mark.replace('class="cross"', 'class="cross" style="stroke:#fff"')
    words = text(middle, y + height / 2 - 2, name, size=size, kind="bold", anchor="middle")
    words += text(middle, y + height / 2 + 14, share, size=11, kind="", anchor="middle")
    words = words.replace("<text ", f"<text{ink} ") if ink else words
    tip = f"{trace.words}, {view.columns[column]}: {name} {share}"
    column_of = f' data-column="{column}"' if column < view.states else ""
    return f'<g class="cell {trace.name}"{column_of}><title>{escape(tip)}</title>{body}{words}</g>'


def charts(view: View) -> Iterator[tuple[str, str]]:
    """Name and SVG of every chart that a view allows."""
    if not view.states:
        return
    for name, chart in along(view):
        yield name, chart.svg(said(view))
    if view.plane is not None:
        yield "plane", plane(view).svg(said(view))
    if view.path is not None:
        yield "path", input_path(view).svg("from the clean to the attacked image and on, after each intervention")
        if view.path.inner_entropy:
            yield "inner", inner_entropy(view).svg("within each intervention, before and after every update")


def along(view: View) -> Iterator[tuple[str, Chart]]:
    """What has a value at every state."""
    if view.label is not None:
        title = f"Probability of {view.class_name(view.label)}"
        yield "truth", _states(view, title, lambda t: t.truth, "{:.0%}".format, high=1.0)
    yield "entropy", _states(view, "Entropy of the prediction (nats)", lambda t: t.entropy, "{:g}".format)
    yield "residual", _states(view, "Residual of the solver", lambda t: t.residual, "{:.0e}".format, log=True)
    if any(trace.distance for trace in view.traces):
        yield "distance", _states(view, "Distance from the clean states", lambda t: t.distance, "{:g}".format)


def _states(
    view: View,
    title: str,
    values: Callable[[Trace], Numbers],
    form: Callable[[float], str],
    *,
    high: float | None = None,
    log: bool = False,
) -> Chart:
    n = view.states
    known = [v for trace in view.traces for v in values(trace)[:n] if v is not None and (v > 0 or not log)]
    if log:
        ticks = decades(min(known, default=0.1), max(known, default=1.0))
        chart = Chart(title, (0.7, n + 0.3), (ticks[0], max([ticks[-1], *known])), log=True)
    else:
        top = (high or max(known, default=1.0)) or 1.0
        ticks = round_ticks(top)
        chart = Chart(title, (0.7, n + 0.3), (0, top * (1.04 if high else 1.1)))
    chart.axes(ticks, "state t", form)
    chart.now(n, view.deployed)
    drawn = [(trace, [*range(1, n + 1)], values(trace)[:n]) for trace in view.traces if values(trace)]
    for trace, xs, ys in drawn:
        chart.line(xs, ys, trace.name)
    for trace, xs, ys in drawn:
        chart.marks(xs, ys, [trace.right(k, view.label) for k in range(n)], trace.name)
    return chart


def plane(view: View) -> Chart:
    """The states in the plane of their first two principal components, over the head's class regions."""
    assert view.plane is not None
    p = view.plane
    chart = Chart(
        "The states, and what the head says there", (p.low[0], p.high[0]), (p.low[1], p.high[1]), height=360, left=RIGHT
    )
    x0, y0, x1, y1 = chart.box
    words = f"first two principal components: {p.share:.0%} of the variance"
    chart.parts.append(text(x1, y1 + 18, words, size=11, kind="soft", anchor="end"))
    regions = np.array(p.regions)
    colours = rgb(REGIONS[k % len(REGIONS)] for k in range(int(regions.max()) + 1))
    place = f'x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" preserveAspectRatio="none"'
    chart.parts.append(f'<image {place} opacity="{SHADE}" href="{png_of(colours[regions])}"/>')
    tall, wide = regions.shape
    for k in np.unique(regions):
        rows, cells = np.nonzero(regions == k)
        if len(rows) > 0.02 * regions.size:
            # a point of the region itself: the one nearest to its centre of mass
            nearest = int(np.argmin((rows - rows.mean()) ** 2 + (cells - cells.mean()) ** 2))
            x, y = x0 + (cells[nearest] + 0.5) / wide * (x1 - x0), y0 + (rows[nearest] + 0.5) / tall * (y1 - y0)
            kind = "bold" if k == view.label else "soft"
            x = min(max(x, x0 + 30), x1 - 30)
            chart.parts.append(
                text(x, min(max(y + 5, y0 + 16), y1 - 6), view.class_name(int(k)), size=15, kind=kind, anchor="middle")
            )
    traces = [trace for trace in view.traces if trace.residual][: len(p.paths)]
    for trace, path in zip(traces, p.paths, strict=True):
        chart.line([x for x, _ in path], [y for _, y in path], trace.name)
    for trace, path in zip(traces, p.paths, strict=True):
        right = [trace.right(k, view.label) for k in range(len(path))]
        chart.marks([x for x, _ in path], [y for _, y in path], right, trace.name)
        x, y = chart.right(path[0][0]), chart.down(path[0][1])
        chart.parts.append(f'<g class="{trace.name}">{text(x + 7, y - 6, "1", size=11, kind="c bold")}</g>')
        ring = '<circle class="ring" r="9"/>'
        places = [(chart.right(a), chart.down(b)) for a, b in path]
        chart.parts.append(
            f'<g class="{trace.name}">{following(ring, places, min(view.deployed, view.states - 1))}</g>'
        )
    return chart


def input_path(view: View) -> Chart:
    """Where entropy reduction moves the image, seen along the attack and across it."""
    assert view.path is not None
    p = view.path
    xs, ys = [x for x, _ in p.points], [y for _, y in p.points]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) or 1.0
    side = max(wide, high * 1.6) * 0.62
    x, y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    chart = Chart(
        "The image on its way through the defence", (x - side, x + side), (y - side / 1.6, y + side / 1.6), left=RIGHT
    )
    chart.parts.append(
        text(
            chart.box[2],
            chart.box[3] + 22,
            "across: from clean to attacked; 1, 2, ...: after each intervention",
            size=11,
            kind="soft",
            anchor="end",
        )
    )
    attacked = p.points[1] != p.points[0]
    if attacked:
        chart.line(xs[:2], ys[:2], "attacked")
    chart.line(xs[1:], ys[1:], "defended")
    names = ["clean", "attacked" if attacked else "", *(f"{k + 1}" for k in range(len(xs) - 2))]
    kinds = ["clean", "attacked", *["defended"] * (len(xs) - 2)]
    below = 18 if sum(ys[2:]) > 0 else -9  # the path leaves the line from clean to attacked on the other side
    named: list[tuple[float, float]] = []
    for name, kind, a, b in zip(names, kinds, xs, ys, strict=True):
        h, v = chart.right(a), chart.down(b)
        words = text(h, v + below, name, size=12, kind="c bold", anchor="middle")
        if kind == "defended":
            words = text(h + 13, v + 4, name, size=12, kind="c bold")
            words = "" if any(math.dist(place, (h, v)) < 14 for place in named) else words
            named.append((h, v))
        chart.parts.append(f'<g class="{kind}">{dot(h, v, 5)}{words}</g>')
    acting = [
        max((k + 1 for k, t in enumerate(p.since) if t <= state), default=0) for state in range(1, view.states + 1)
    ]
    places = [(chart.right(xs[1 + k]), chart.down(ys[1 + k])) for k in acting]
    chart.parts.append(following('<circle class="ring" r="10"/>', places, min(view.deployed, view.states - 1)))
    return chart


def inner_entropy(view: View) -> Chart:
    """The entropy within each intervention of the defence."""
    assert view.path is not None
    p = view.path
    top = max((v for values in p.inner_entropy for v in values if v is not None), default=1.0) or 1.0
    chart = Chart("Entropy within each intervention (nats)", (0.7, view.states + 0.3), (0, 1.1 * top))
    chart.axes(round_ticks(top), "state t")
    chart.now(view.states, view.deployed)
    for t, values in zip(p.since, p.inner_entropy, strict=False):
        span = [t - 0.75 + 0.75 * k / max(len(values) - 1, 1) for k in range(len(values))]
        chart.line(span, values, "defended")
        chart.marks(span[:: max(len(span) - 1, 1)], values[:: max(len(values) - 1, 1)], [True, True], "defended")
    return chart


def said(view: View) -> str:
    """The strip in words."""
    parts = []
    for trace in view.traces:
        answers = [f"{c} {view.class_name(trace.prediction[k])}" for k, c in enumerate(view.columns)]
        parts.append(f"{trace.words}: {', '.join(answers)}")
    return f"Predictions at each state. True class: {view.class_name(view.label)}. " + "; ".join(parts)
