"""The page: the explorer's controls and a view, or one view as a file that needs no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from robustdeq.app.case import Case, called
from robustdeq.app.chart import STYLE
from robustdeq.app.drawing import charts, strip
from robustdeq.app.look import Looked
from robustdeq.app.poster import poster
from robustdeq.app.script import script
from robustdeq.app.views import Trace, View
from robustdeq.host.files import write_together
from robustdeq.report.results.cases import CASE, FORMAT, VERSION


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("robustdeq.app"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def _json(data: Any) -> str:
    """JSON that can stand in a page."""
    return json.dumps(data).replace("<", "\\u003c")


def _answer(view: View, trace: Trace, column: int) -> str:
    share = trace.confidence[column]
    return view.class_name(trace.prediction[column]) + ("" if share is None else f" ({share:.0%})")


def headline(view: View) -> list[str]:
    """What happened, in words."""
    column, label = view.deployed, view.class_name(view.label)
    traces = {trace.name: trace for trace in view.traces}

    def answer(name: str) -> str:
        return _answer(view, traces[name], column)

    def right(name: str) -> bool:
        return traces[name].right(column, view.label)

    where = f"z[{view.columns[column]}]" if view.states else "its output"
    said = []
    if not right("clean"):
        said.append(f"Wrong without any attack: {answer('clean')} instead of {label}.")
    if "attacked" in traces:
        budget = f"a change of at most {written(view.moved)} per pixel"
        if right("attacked"):
            said.append(f"Not fooled: still {answer('attacked')} after {budget}.")
        elif right("clean"):
            said.append(f"Fooled: {budget} turns {answer('clean')} into {answer('attacked')}.")
        else:
            said.append(f"Attacked, by {budget}: {answer('attacked')}.")
        if view.states:
            wrong = [k + 1 for k in range(view.states) if not traces["attacked"].right(k, view.label)]
            if wrong and len(wrong) < view.states:
                said.append(f"Wrong at states {_ranges(wrong)} of {view.states}; read at {where}.")
    elif right("clean"):
        said.append(f"Right: {answer('clean')}.")
    if "defended" in traces:
        before = right("attacked") if "attacked" in traces else right("clean")
        now = answer("defended")
        if right("defended"):
            said.append(f"With {view.defence} {'still' if before else 'right again:'} {now}.")
        else:
            name = f"{view.defence[0].upper()}{view.defence[1:]}"
            said.append(f"{name} {'breaks it:' if before else 'does not help:'} {now}.")
    return said


def written(value: float) -> str:
    """A pixel difference, as a fraction of 255 where it is one."""
    steps = value * 255
    return f"{round(steps)}/255" if abs(steps - round(steps)) < 1e-3 and steps >= 0.5 else f"{value:.3g}"


def _ranges(states: list[int]) -> str:
    """1, 2, 3, 6 as 1-3, 6."""
    groups: list[list[int]] = []
    for t in states:
        if groups and t == groups[-1][-1] + 1:
            groups[-1].append(t)
        else:
            groups.append([t])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)


def title(looked: Looked) -> str:
    """One line that names a view."""
    case, view = looked.case, looked.view
    own = "attack" in case.own
    attack = "no attack" if looked.attack is None else f"{called(case.attack)}{'' if own else f'-{case.steps}'}"
    return f"{view.class_name(view.label)} ({case.model.rstrip('/').rsplit('/', 1)[-1]}, {attack})"


def view_html(looked: Looked) -> str:
    """The view as the inside of a page."""
    view = looked.view
    says = [
        [t.name, t.words, [[_answer(view, t, k), t.right(k, view.label)] for k in range(view.states)]]
        for t in view.traces
    ]
    text: str = _environment().get_template("view.html").render(
        looked=looked, view=view, charts=charts(view), headline=headline(view),
        wide=strip(view), tall=strip(view, tall=True), script=script(looked),
        query=looked.case.query, written=written,
        says=_json(says),
    )  # fmt: skip
    return text


def explorer_html(start: Case, options: dict[str, Any]) -> str:
    """The page with controls; `options` are the choices that they offer."""
    data = {"case": start.changed(), "options": options}
    return _page(live=True, content="", title="robustdeq explore", data=data, own=options["own"])


def export_html(looked: Looked) -> str:
    """One view as a page that needs no server."""
    return _page(live=False, content=view_html(looked), title=title(looked), data={"case": looked.case.changed()})


def _page(*, live: bool, content: str, title: str, data: dict[str, Any], own: Sequence[Any] = ()) -> str:
    folder = resources.files("robustdeq.app") / "templates"
    text: str = _environment().get_template("page.html").render(
        live=live, content=content, own=own, title=title, style=STYLE + (folder / "page.css").read_text(),
        code=(folder / "page.js").read_text(),
        data=_json(data),
    )  # fmt: skip
    return text


def export(looked: Looked, folder: Path) -> Path:
    """Write a case into a folder: a page, a picture, and what `robustdeq report` reads of it."""
    view = looked.view
    said = {
        "format": FORMAT, "format_version": VERSION, "title": title(looked), "headline": headline(view),
        "case": looked.case.changed(), "eps": looked.eps, "label": view.class_name(view.label),
        "predictions": {t.name: view.class_name(t.prediction[view.deployed]) for t in view.traces},
        "command": looked.command,
    }  # fmt: skip
    files = {
        "index.html": export_html(looked),
        "case.svg": poster((view, headline(view))),
        "case.py": script(looked),
        CASE: json.dumps(said, indent=2) + "\n",
    }
    write_together({folder / name: text.encode() for name, text in files.items()})
    return folder / "index.html"
