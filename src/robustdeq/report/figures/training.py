"""Figs. 4 and 6: validation accuracy during training."""

from __future__ import annotations

from typing import Any

from robustdeq.report.figures.drawing import Figure, draw, line_style
from robustdeq.report.results import Run


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
