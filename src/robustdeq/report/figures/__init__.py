"""The figures of a report, as SVG."""

from __future__ import annotations

from dataclasses import replace

from robustdeq.report.figures.accuracies import figure_3a, figure_4, figure_5, figures_6
from robustdeq.report.figures.along_states import diagnosed_attack, figure_2, figure_3c, figures_3b
from robustdeq.report.figures.drawing import Figure, distinct
from robustdeq.report.figures.kept import kept_case
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.match import predictor_key, same_evaluation

__all__ = ["Figure", "make_figures"]


def make_figures(sources: Sources) -> list[Figure]:
    """Every figure that the results allow."""
    whole = [r for r in sources.results if r.manifest.dynamic and not r.manifest.union]
    attacked = [r for r in whole if not r.oblivious]
    rows = [predictor_key(r) for r in sources.main]
    shown = [_with_residuals(r, attacked) for r in attacked if r in sources.main or predictor_key(r) not in rows]
    figures = [figure_2(r) for k, r in enumerate(shown) if r not in shown[:k]]
    figures += [figure_3a(whole), *figures_3b(whole), figure_3c(attacked)]
    figures += [figure_4(sources.runs), *map(figure_5, whole), *figures_6(sources.runs)]
    drawn = [figure for figure in figures if figure is not None] + [*map(kept_case, sources.cases)]
    names = distinct(figure.name for figure in drawn)
    return [replace(figure, name=name) for figure, name in zip(drawn, names, strict=True)]


def _with_residuals(r: Result, results: list[Result]) -> Result:
    """The result itself, or another of the same predictor and images if only that one has residuals under attack."""
    if diagnosed_attack(r):
        return r
    return next((other for other in results if same_evaluation(other, r) and diagnosed_attack(other)), r)
