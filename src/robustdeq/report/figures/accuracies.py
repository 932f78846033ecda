"""Figs. 3a, 4, 5 and 6: accuracy under the grid of intermediate-state attacks, and during training."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.figures.drawing import COLOURS, HEIGHT, Figure, draw, legend_above, legend_room, line_style, slug
from robustdeq.report.results import Result, Run
from robustdeq.report.results.complete import has_whole_grid


def figure_3a(results: list[Result]) -> Figure | None:
    """Accuracy under each attack of the grid by the state it attacks."""
    grids = {r.name: _grid(r) for r in results if has_whole_grid(r)}
    if not grids:
        return None

    def paint(axes: Any) -> None:
        for k, (label, grid) in enumerate(grids.items()):
            offset = (k - (len(grids) - 1) / 2) * min(0.15, 0.7 / len(grids))  # so that results stand side by side
            axes.scatter(grid["i"].to_numpy() + offset, 100 * grid["accuracy"].to_numpy(), s=9, alpha=0.55)
            lowest = grid.group_by("i").agg(pl.col("accuracy").min()).sort("i")
            axes.plot(lowest["i"].to_numpy() + offset, 100 * lowest["accuracy"].to_numpy(), line_style(k), label=label)
        axes.set_xlabel("state i that is attacked")
        axes.set_ylabel("accuracy (%)")
        legend_above(axes, grids)

    lows = "; ".join(f"{label} {100 * float(grid['accuracy'].to_numpy().min()):.1f}" for label, grid in grids.items())
    alt = f"Accuracy under each attack of the grid, by the state it attacks; lines join the lowest. Lowest (%): {lows}."
    where = f"stores {', '.join(grids)}: grid; deployed state; share without success"
    title = "Fig. 3a. Accuracy under intermediate-state attacks"
    return draw("figure-3a", title, alt, paint, height=HEIGHT + legend_room(grids), where=where)


def figure_5(r: Result) -> Figure | None:
    """Accuracy under the grid by unrolling steps, one line per state."""
    if not has_whole_grid(r):
        return None
    grid = _grid(r)
    dampings = sorted(grid["damping"].unique().to_list())
    states = sorted(grid["i"].unique().to_list())
    shades = np.linspace(0.25, 1.0, len(states))

    def paint(*axes: Any) -> None:
        for panel, damping in zip(axes, dampings, strict=True):
            for i, shade in zip(states, shades, strict=True):
                line = grid.filter((pl.col("damping") == damping) & (pl.col("i") == i)).sort("K")
                style = {"color": COLOURS[0], "alpha": shade, "marker": ".", "label": f"i = {i}"}
                panel.plot(line["K"].to_numpy(), 100 * line["accuracy"].to_numpy(), **style)
            panel.set_xlabel("unrolling steps K_a")
            panel.set_title(f"lambda = {damping:g}", fontsize=10)
        axes[0].set_ylabel("accuracy (%)")
        axes[-1].legend(fontsize=7, ncol=2)

    alt = f"Accuracy of {r.name} by unrolling steps, a line per state, earlier ones paler; a panel for each lambda."
    where = f"store {r.label}: grid; predictor {r.predictor}, deployed state; share without success"
    title = f"Fig. 5. Intermediate-state attacks by unrolling: {r.name}"
    return draw(f"figure-5-{slug(r.name)}", title, alt, paint, panels=len(dampings), width=7.0, where=where)


def _grid(r: Result) -> pl.DataFrame:
    """Accuracy under the oblivious attacks of the grid, with their oracles."""
    return metrics.by_oracle(r.store, predictor=r.predictor).filter(~pl.col("aware"))


def figures_4_and_6(runs: list[Run]) -> Figure | None:
    """Accuracy under PGD-10 on held-out training images by epoch, one line per run."""
    curves = {run.label: points for run in runs if (points := run.validation())}
    if not curves:
        return None

    def paint(axes: Any) -> None:
        for k, (label, points) in enumerate(curves.items()):
            axes.plot([p[0] for p in points], [100 * p[2] for p in points], line_style(k), marker=".", label=label)
        axes.set_xlabel("epoch")
        axes.set_ylabel("held-out PGD accuracy (%)")
        axes.legend(fontsize=8)

    said = "; ".join(f"{label} {100 * points[-1][2]:.1f} percent at the end" for label, points in curves.items())
    alt = f"Accuracy under PGD-10 on held-out training images, by epoch: {said}."
    where = "; ".join(f"run {label}: metrics.csv, validation_pgd" for label in curves)
    return draw("figure-4-6", "Figs. 4 and 6. PGD-10 accuracy during training", alt, paint, where=where)
