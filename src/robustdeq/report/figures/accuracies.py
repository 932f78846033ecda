"""Figs. 3a, 4, 5 and 6: accuracy under the grid of intermediate-state attacks, and during training."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.figures.drawing import COLOURS, HEIGHT, Figure, draw, legend_above, legend_room, line_style, slug
from robustdeq.report.results import Result, Run
from robustdeq.report.results.complete import has_whole_grid
from robustdeq.report.results.trainings import jacobian_groups


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
    """Accuracy under the grid by the state that is attacked, a panel per lambda, the strongest K_a joined."""
    if not has_whole_grid(r):
        return None
    grid = _grid(r)
    dampings = sorted(grid["damping"].unique().to_list(), reverse=True)
    unrollings = sorted(grid["K"].unique().to_list())
    shades = np.linspace(0.25, 1.0, len(unrollings))
    lowest = grid.sort("accuracy", "K").group_by("damping", "i", maintain_order=True).first().sort("damping", "i")

    def paint(*axes: Any) -> None:
        values = 100 * grid["accuracy"].to_numpy()
        room = max(0.05 * (values.max() - values.min()), 0.5)
        for panel, damping in zip(axes, dampings, strict=True):
            for k, shade in zip(unrollings, shades, strict=True):
                dots = grid.filter((pl.col("damping") == damping) & (pl.col("K") == k)).sort("i")
                style = {"color": COLOURS[0], "alpha": shade, "s": 12, "label": f"K_a = {k}"}
                panel.scatter(dots["i"].to_numpy(), 100 * dots["accuracy"].to_numpy(), **style)
            line = lowest.filter(pl.col("damping") == damping)
            low = line["i"].to_numpy(), 100 * line["accuracy"].to_numpy()
            panel.plot(*low, color=COLOURS[1], marker="o", markersize=4, label="strongest")
            panel.set_ylim(values.min() - room, values.max() + room)
            panel.set_xlabel("state i that is attacked")
            panel.set_title(f"lambda = {damping:g}", fontsize=10)
        axes[0].set_ylabel("accuracy (%)")
        axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))

    ends = "; ".join(
        f"lambda {row['damping']:g}, state {row['i']}: {100 * row['accuracy']:.1f} (K_a {row['K']})"
        for row in lowest.iter_rows(named=True)
    )
    alt = (
        f"Accuracy (%) of {r.name} under each attack of the grid by the state it attacks, a panel for each lambda. "
        f"Dots are unrollings K_a, later ones darker, and a line joins the strongest: {ends}."
    )
    where = f"store {r.label}: grid; predictor {r.predictor}, deployed state; share without success"
    title = f"Fig. 5. Intermediate-state attacks along the states: {r.name}"
    name = f"figure-5-{slug(r.name)}"
    return draw(name, title, alt, paint, panels=len(dampings), width=8.0, margin=1.0, where=where)


def _grid(r: Result) -> pl.DataFrame:
    """Accuracy under the oblivious attacks of the grid, with their oracles."""
    return metrics.by_oracle(r.store, predictor=r.predictor).filter(~pl.col("aware"))


def figure_4(runs: list[Run]) -> Figure | None:
    """Accuracy under PGD-10 on held-out training images by epoch, one line per run."""
    curves = {run.label: run for run in runs if run.validation()}
    return _training_curves("figure-4", "Fig. 4. PGD-10 accuracy during training", curves) if curves else None


def figures_6(runs: list[Run]) -> list[Figure]:
    """The same for runs of one model and objective with several weights of the Jacobian penalty."""
    figures = []
    for (model, training, states), group in jacobian_groups(runs).items():
        curves = {f"weight {run.jacobian:g} ({run.label})": run for run in group}
        what = f"{training}{' + Sec. 3.3' if states == 'random' else ''}, {model}"
        title = f"Fig. 6. PGD-10 accuracy during training by Jacobian weight: {what}"
        figures.append(_training_curves(f"figure-6-{slug(what)}", title, curves))
    return figures


def _training_curves(name: str, title: str, runs: dict[str, Run]) -> Figure:
    """Held-out PGD-10 accuracy by epoch, a line per run."""
    curves = {label: run.validation() for label, run in runs.items()}

    def paint(axes: Any) -> None:
        for k, (label, points) in enumerate(curves.items()):
            axes.plot([p[0] for p in points], [100 * p[2] for p in points], line_style(k), marker=".", label=label)
        axes.set_xlabel("epoch")
        axes.set_ylabel("held-out PGD accuracy (%)")
        legend_above(axes, curves)

    said = "; ".join(f"{label} {100 * points[-1][2]:.1f} percent at the end" for label, points in curves.items())
    alt = f"Accuracy under PGD-10 on held-out training images, by epoch: {said}."
    where = "; ".join(f"run {run.label}: metrics.csv, validation_pgd" for run in runs.values())
    return draw(name, title, alt, paint, height=HEIGHT + legend_room(curves), where=where)
