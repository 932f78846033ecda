"""Figs. 2, 3b and 3c: residual, entropy and deviation along the states, clean and attacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.figures.drawing import COLOURS, HEIGHT, Figure, draw, legend_above, legend_room, line_style, slug
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, grid


def figure_2(r: Result) -> Figure | None:
    """Residuals, entropies and mean entropy along the states, clean and attacked."""
    name = diagnosed_attack(r) or _strongest(r)
    if name is None or r.entropy is not None:
        return None
    own = pl.col("predictor") == r.predictor
    frames = [rows.filter(own).collect() for rows in (r.store.clean(), r.store.rows(name))]
    states, words = _states(r), ("clean", "attacked")
    residuals = [f.filter(pl.col("state") == str(states[-1]))["residual"].drop_nulls().to_numpy() for f in frames]
    entropies = [f.filter(pl.col("deployed"))["entropy"].to_numpy() for f in frames]
    traces = [_trace(f.group_by("state").agg(pl.col("entropy").mean()), states) for f in frames]

    def paint(a: Any, b: Any, c: Any) -> None:
        for values, word, colour in zip(residuals, words, COLOURS, strict=False):
            if len(values):
                a.hist(np.log10(np.maximum(values, 1e-12)), bins=24, alpha=0.6, color=colour, label=word)
        a.set_xlabel(f"log10 residual of z[{states[-1]}]")
        a.set_ylabel("images")
        top = max((float(v.max()) for v in entropies if len(v)), default=1.0)
        for values, word, colour in zip(entropies, words, COLOURS, strict=False):
            b.hist(values, bins=np.linspace(0, top, 25), alpha=0.6, color=colour, label=word)
        b.set_xlabel("entropy (nats)")
        for trace, word in zip(traces, words, strict=True):
            c.plot(states, trace, marker="o", label=word)
        c.set_xlabel("state t")
        c.set_ylabel("mean entropy (nats)")
        c.legend()

    alt = (
        f"Three panels for {r.name}. Left: residuals at the last state. Middle: entropies of the prediction. Right: "
        f"mean entropy along the states, from {traces[0][0]:.2f} to {traces[0][-1]:.2f} nats clean and from "
        f"{traces[1][0]:.2f} to {traces[1][-1]:.2f} under {name}."
    )
    where = f"store {r.label}: clean and {name}; predictor {r.predictor}; residual, entropy"
    title = f"Fig. 2. Residual and entropy, clean and under {name}: {r.name}"
    return draw(f"figure-2-{slug(r.name)}", title, alt, paint, panels=3, width=9.0, height=2.8, where=where)


def figure_3b(results: list[Result]) -> Figure | None:
    """How the entropy reduction changes the mean entropy at each state, on attacked images."""
    lines = {}
    for r in results:
        name = _strongest(r)
        if r.undefended is None or name is None:
            continue
        rows = r.store.rows(name).group_by("predictor", "state").agg(pl.col("entropy").mean()).collect()
        defended, undefended = (
            np.array(_trace(rows.filter(pl.col("predictor") == who).select("state", "entropy"), _states(r)))
            for who in (r.predictor, r.undefended)
        )
        if np.isnan([defended, undefended]).all():  # a condensed store
            continue
        said = f"store {r.label}: {name}; entropy, predictor {r.predictor} minus {r.undefended}"
        lines[r.name] = (_states(r), defended - undefended, said)
    if not lines:
        return None

    def paint(axes: Any) -> None:
        _plot(axes, lines, "entropy change (nats)")
        axes.axhline(0, color="#888888", linewidth=0.8)
        legend_above(axes, lines)

    said = "; ".join(f"{label} {values[-1]:+.3f} at the last state" for label, (_, values, _) in lines.items())
    alt = f"Change of the mean entropy by entropy reduction at each state, on attacked images: {said}."
    where = "; ".join(said for _, _, said in lines.values())
    title = "Fig. 3b. Entropy change by state from Sec. 3.2"
    return draw("figure-3b", title, alt, paint, height=HEIGHT + legend_room(lines), where=where)


def figure_3c(results: list[Result]) -> Figure | None:
    """How far attacks move each state, relative to the clean state."""
    lines = {}
    for r in results:
        name = diagnosed_attack(r)
        if name is None:
            continue
        rows = r.store.rows(name).filter((pl.col("predictor") == r.predictor) & pl.col("deviation").is_not_null())
        means = rows.group_by("state").agg(pl.col("deviation").mean()).collect()
        if len(means):
            lines[r.name] = (_states(r), _trace(means, _states(r)), name)
    if not lines:
        return None

    def paint(axes: Any) -> None:
        _plot(axes, lines, "relative deviation")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)

    said = "; ".join(f"{label} {values[-1]:.3f}" for label, (_, values, _) in lines.items())
    alt = f"Relative deviation of attacked from clean states, by state; at the last one: {said}."
    where = "; ".join(f"store {label}: {name}; deviation" for label, (_, _, name) in lines.items())
    return draw("figure-3c", "Fig. 3c. Deviation of the states under attack", alt, paint, where=where)


def _plot(axes: Any, lines: dict[str, tuple[Any, ...]], unit: str) -> None:
    for k, (label, (states, values, _)) in enumerate(lines.items()):
        axes.plot(states, values, line_style(k), marker="o", label=label)
    axes.set_xlabel("state t")
    axes.set_ylabel(unit)


def diagnosed_attack(r: Result) -> str | None:
    """The first finished attack that residuals and deviations were stored for."""
    attacks = r.manifest.attacks.items()
    return next((name for name, record in attacks if record.spec.diagnostics and r.store.complete(name)), None)


def _strongest(r: Result) -> str | None:
    """The strongest attack of the grid; while that is unfinished, a finished attack at the final state."""
    if complete(r, grid(r)):
        shares = metrics.attack_shares(r.store, grid(r), predictor=r.predictor)
        return min(shares, key=lambda name: shares[name].value)
    attacks = r.manifest.attacks.items()
    return next((name for name, record in attacks if record.spec.group == "ready" and r.store.complete(name)), None)


def _states(r: Result) -> list[int]:
    return [int(name) for name in r.manifest.predictors["deployed"].states if name != "final"]


def _trace(means: pl.DataFrame, states: list[int]) -> list[float]:
    """The means (state, value) in the order of the states; NaN where there is none."""
    by_state = dict(means.iter_rows())
    found = (by_state.get(str(t)) for t in states)
    return [np.nan if value is None else float(value) for value in found]
