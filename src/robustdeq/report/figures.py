"""The paper's figures from stores and training runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.drawing import COLOURS, MARGINS, Figure, draw
from robustdeq.report.sources import Result, Run, Sources

HEIGHT = 2.8
"""Inches of a figure whose legend comes on top."""


def make_figures(sources: Sources) -> list[Figure]:
    """Every figure that the results allow."""
    whole = [r for r in sources.results if r.dynamic and not r.store.manifest.union]
    attacked = [r for r in whole if not r.oblivious]
    rows = [r.subject for r in sources.main]
    shown = [_with_residuals(r, attacked) for r in attacked if r in sources.main or r.subject not in rows]
    figures = [figure_2(r) for k, r in enumerate(shown) if r not in shown[:k]]
    figures += [figure_3a(whole), figure_3b(whole), figure_3c(attacked)]
    figures += [*map(figure_5, attacked), figure_4(sources.runs)]
    return [figure for figure in figures if figure is not None]


def figure_2(r: Result) -> Figure | None:
    """Residuals, entropies and one trace, clean and attacked."""
    name = _diagnosed(r) or _strongest(r)
    if name is None or r.entropy is not None:
        return None
    clean = r.store.clean().filter(_own(r)).collect()
    attacked = r.store.rows(name).filter(_own(r)).collect()
    last = str(_states(r)[-1])
    residuals = [f.filter(pl.col("state") == last)["residual"].drop_nulls().to_numpy() for f in (clean, attacked)]
    entropies = [f.filter(pl.col("deployed"))["entropy"].to_numpy() for f in (clean, attacked)]
    traces = [_trace(f.group_by("state").agg(pl.col("entropy").mean()), _states(r)) for f in (clean, attacked)]
    words = ("clean", "attacked")

    def paint(a: Any, b: Any, c: Any) -> None:
        for values, word, colour in zip(residuals, words, COLOURS, strict=False):
            if len(values):
                a.hist(np.log10(np.maximum(values, 1e-12)), bins=24, alpha=0.6, color=colour, label=word)
        a.set_xlabel(f"log10 residual of z[{last}]")
        a.set_ylabel("images")
        top = max((float(v.max()) for v in entropies if len(v)), default=1.0)
        for values, word, colour in zip(entropies, words, COLOURS, strict=False):
            b.hist(values, bins=np.linspace(0, top, 25), alpha=0.6, color=colour, label=word)
        b.set_xlabel("entropy (nats)")
        for trace, word in zip(traces, words, strict=True):
            c.plot(_states(r), trace, marker="o", label=word)
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
    return draw(f"figure-2-{_slug(r)}", title, alt, paint, panels=3, width=9.0, height=2.8, where=where)


def figure_3a(results: list[Result]) -> Figure | None:
    """The grid's accuracies by state."""
    grids = {r.name: _grid(r) for r in results if r.whole}
    if not grids:
        return None

    def paint(axes: Any) -> None:
        for k, (label, grid) in enumerate(grids.items()):
            offset = (k - (len(grids) - 1) / 2) * min(0.15, 0.7 / len(grids))  # beside its own state
            axes.scatter(grid["i"].to_numpy() + offset, 100 * grid["accuracy"].to_numpy(), s=9, alpha=0.55)
            lowest = grid.group_by("i").agg(pl.col("accuracy").min()).sort("i")
            axes.plot(lowest["i"].to_numpy() + offset, 100 * lowest["accuracy"].to_numpy(), _style(k), label=label)
        axes.set_xlabel("state i that is attacked")
        axes.set_ylabel("accuracy (%)")
        _legend_above(axes, grids)

    lows = "; ".join(f"{label} {100 * float(grid['accuracy'].to_numpy().min()):.1f}" for label, grid in grids.items())
    alt = f"Accuracy under each attack of the grid, by the state it attacks; lines join the lowest. Lowest (%): {lows}."
    where = f"stores {', '.join(grids)}: grid; deployed state; share without success"
    title = "Fig. 3a. Accuracy under intermediate-state attacks"
    return draw("figure-3a", title, alt, paint, height=HEIGHT + _legend_room(grids), where=where)


def figure_3b(results: list[Result]) -> Figure | None:
    """What the entropy reduction does to entropy along the states, on attacked images."""
    lines = {}
    for r in results:
        name = _strongest(r)
        if r.undefended is None or name is None:
            continue
        rows = r.store.rows(name).group_by("predictor", "state").agg(pl.col("entropy").mean()).collect()
        means = {
            who: _trace(rows.filter(pl.col("predictor") == who).select("state", "entropy"), _states(r))
            for who in (r.predictor, r.undefended)
        }
        if np.isnan([*means.values()]).all():  # a condensed store
            continue
        said = f"store {r.label}: {name}; entropy, predictor {r.predictor} minus {r.undefended}"
        lines[r.name] = (_states(r), np.array(means[r.predictor]) - np.array(means[r.undefended]), said)
    if not lines:
        return None

    def paint(axes: Any) -> None:
        for k, (label, (states, values, _)) in enumerate(lines.items()):
            axes.plot(states, values, _style(k), marker="o", label=label)
        axes.axhline(0, color="#888888", linewidth=0.8)
        axes.set_xlabel("state t")
        axes.set_ylabel("entropy change (nats)")
        _legend_above(axes, lines)

    said = "; ".join(f"{label} {values[-1]:+.3f} at the last state" for label, (_, values, _) in lines.items())
    alt = f"Change of the mean entropy by entropy reduction at each state, on attacked images: {said}."
    where = "; ".join(said for _, _, said in lines.values())
    title = "Fig. 3b. Entropy change by state from Sec. 3.2"
    return draw("figure-3b", title, alt, paint, height=HEIGHT + _legend_room(lines), where=where)


def figure_3c(results: list[Result]) -> Figure | None:
    """How far attacks move the states."""
    lines = {}
    for r in results:
        name = _diagnosed(r)
        if name is None:
            continue
        rows = r.store.rows(name).filter(_own(r) & pl.col("deviation").is_not_null())
        means = rows.group_by("state").agg(pl.col("deviation").mean()).collect()
        if len(means):
            lines[r.name] = (_states(r), _trace(means.rename({"deviation": "entropy"}), _states(r)), name)
    if not lines:
        return None

    def paint(axes: Any) -> None:
        for k, (label, (states, values, _)) in enumerate(lines.items()):
            axes.plot(states, values, _style(k), marker="o", label=label)
        axes.set_xlabel("state t")
        axes.set_ylabel("relative deviation")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)

    said = "; ".join(f"{label} {values[-1]:.3f}" for label, (_, values, _) in lines.items())
    alt = f"Relative deviation of attacked from clean states, by state; at the last one: {said}."
    where = "; ".join(f"store {label}: {name}; deviation" for label, (_, _, name) in lines.items())
    return draw("figure-3c", "Fig. 3c. Deviation of the states under attack", alt, paint, where=where)


def figure_5(r: Result) -> Figure | None:
    """The grid by unrolling, a line per state."""
    if not r.whole:
        return None
    grid = _grid(r)
    dampings = sorted(grid["damping"].unique().to_list())
    states = sorted(grid["i"].unique().to_list())
    shades = np.linspace(0.25, 1.0, len(states))

    def paint(*axes: Any) -> None:
        for panel, damping in zip(axes, dampings, strict=True):
            for i, shade in zip(states, shades, strict=True):
                line = grid.filter((pl.col("damping") == damping) & (pl.col("i") == i)).sort("K")
                panel.plot(
                    line["K"].to_numpy(),
                    100 * line["accuracy"].to_numpy(),
                    color=COLOURS[0],
                    alpha=shade,
                    marker=".",
                    label=f"i = {i}",
                )
            panel.set_xlabel("unrolling steps K_a")
            panel.set_title(f"lambda = {damping:g}", fontsize=10)
        axes[0].set_ylabel("accuracy (%)")
        axes[-1].legend(fontsize=7, ncol=2)

    alt = f"Accuracy of {r.name} by unrolling steps, a line per state, earlier ones paler; a panel for each lambda."
    where = f"store {r.label}: grid; predictor {r.predictor}, deployed state; share without success"
    title = f"Fig. 5. Intermediate-state attacks by unrolling: {r.name}"
    return draw(f"figure-5-{_slug(r)}", title, alt, paint, panels=len(dampings), width=7.0, where=where)


def figure_4(runs: list[Run]) -> Figure | None:
    """Validation accuracy during training."""
    curves = {run.label: run.validation() for run in runs}
    curves = {label: points for label, points in curves.items() if points}
    if not curves:
        return None

    def paint(axes: Any) -> None:
        for k, (label, points) in enumerate(curves.items()):
            axes.plot([p[0] for p in points], [100 * p[2] for p in points], _style(k), marker=".", label=label)
        axes.set_xlabel("epoch")
        axes.set_ylabel("held-out PGD accuracy (%)")
        axes.legend(fontsize=8)

    said = "; ".join(f"{label} {100 * points[-1][2]:.1f} percent at the end" for label, points in curves.items())
    alt = f"Accuracy under PGD-10 on held-out training images, by epoch: {said}."
    where = "; ".join(f"run {label}: metrics.csv, validation_pgd" for label in curves)
    return draw("figure-4-6", "Figs. 4 and 6. PGD-10 accuracy during training", alt, paint, where=where)


def _style(line: int) -> str:
    """Dashed where colours come again."""
    return "-" if line < len(COLOURS) else "--"


def _legend_above(axes: Any, names: Collection[str]) -> None:
    """A legend over room of its own, which the figure is higher by: it covers no point."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) * _legend_room(names) / (HEIGHT - MARGINS[2] - MARGINS[3]))
    axes.legend(fontsize=8, loc="upper left", ncol=_legend_columns(names))


def _legend_columns(names: Collection[str]) -> int:
    return 2 if max(map(len, names)) <= 24 else 1


def _legend_room(names: Collection[str]) -> float:
    """Inches."""
    return 0.1 + 0.17 * -(-len(names) // _legend_columns(names))


def _own(r: Result) -> pl.Expr:
    return pl.col("predictor") == r.predictor


def _grid(r: Result) -> pl.DataFrame:
    """The grid's accuracies with their oracles, oblivious attacks only."""
    return metrics.by_oracle(r.store, predictor=r.predictor).filter(~pl.col("aware"))


def _states(r: Result) -> list[int]:
    return [int(name) for name in r.store.manifest.predictors["deployed"].states if name != "final"]


def _trace(means: pl.DataFrame, states: list[int]) -> list[float]:
    by_state = dict(zip(means["state"].to_list(), means["entropy"].to_list(), strict=True))
    found = (by_state.get(str(t)) for t in states)
    return [np.nan if value is None else float(value) for value in found]


def _strongest(r: Result) -> str | None:
    """The grid's strongest attack, else any ready-made one."""
    if r.complete(r.grid):
        table = metrics.accuracy(r.store, r.grid, predictor=r.predictor)
        return str(table["attack"][int(table["accuracy"].arg_min() or 0)])
    ready = [n for n, c in r.store.manifest.attacks.items() if c.spec.group == "ready" and r.store.complete(n)]
    return ready[0] if ready else None


def _diagnosed(r: Result) -> str | None:
    found = [n for n, c in r.store.manifest.attacks.items() if c.spec.diagnostics and r.store.complete(n)]
    return found[0] if found else None


def _with_residuals(r: Result, results: list[Result]) -> Result:
    """Where it has none under attack, another of the same predictor and images that has."""
    return r if _diagnosed(r) else next((x for x in results if x.identity == r.identity and _diagnosed(x)), r)


def _slug(r: Result) -> str:
    return "".join(c if c.isalnum() or c in "-+." else "-" for c in r.name)
