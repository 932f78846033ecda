"""Figs. 2, 3b and 3c: residual, entropy and deviation along the states, clean and attacked."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.figures.drawing import COLOURS, HEIGHT, Figure, draw, legend_above, legend_room, line_style, slug
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, grid
from robustdeq.report.results.match import predictor_key, weights

RULE = (
    "It is, of the images that are right clean and wrong attacked, the one whose entropy rises by the median; of two "
    "in the middle the lower."
)
"""How the one image of Fig. 2c is chosen."""


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
    image = example(*frames)
    chosen = [f.filter(pl.col("image").is_in([] if image is None else [image])) for f in frames]
    own_traces = [_trace(f.select("state", "entropy"), states) for f in chosen]

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
        for trace, one, word, colour in zip(traces, own_traces, words, COLOURS, strict=False):
            if image is not None:
                c.plot(states, one, marker="o", markersize=4, color=colour, label=f"image {image}, {word}")
            c.plot(states, trace, linestyle="--", color=colour, label=f"mean, {word}")
        c.set_xlabel("state t")
        c.set_ylabel("entropy (nats)")
        c.set_ylim(0, 1.5 * c.get_ylim()[1])  # room for the legend
        c.legend(fontsize=7, loc="upper left")

    alt = (
        f"Three panels for {r.name}. Left: residuals at the last state. Middle: entropies of the prediction. Right: "
        f"entropy along the states, on average from {traces[0][0]:.2f} to {traces[0][-1]:.2f} nats clean and from "
        f"{traces[1][0]:.2f} to {traces[1][-1]:.2f} under {name}"
    )
    if image is not None:
        clean, attacked = own_traces
        alt += (
            f"; of image {image} from {clean[0]:.2f} to {clean[-1]:.2f} and from {attacked[0]:.2f} to "
            f"{attacked[-1]:.2f}. {RULE}"
        )
    alt = alt.rstrip(".") + "."
    where = f"store {r.label}: clean and {name}; predictor {r.predictor}; residual, entropy"
    title = f"Fig. 2. Residual and entropy, clean and under {name}: {r.name}"
    return draw(f"figure-2-{slug(r.name)}", title, alt, paint, panels=3, width=9.0, height=2.8, where=where)


def example(clean: pl.DataFrame, attacked: pl.DataFrame) -> int | None:
    """The image of Fig. 2c, by `RULE`; None if the attack turns no image."""
    right = clean.filter(pl.col("deployed") & pl.col("correct")).select("image", "entropy")
    turned = attacked.filter(pl.col("deployed") & pl.col("success")).select("image", "entropy")
    both = right.join(turned, on="image").select("image", rise=pl.col("entropy_right") - pl.col("entropy"))
    ranked = both.filter(pl.col("rise").is_finite()).sort("rise", "image")
    return int(ranked["image"][(len(ranked) - 1) // 2]) if len(ranked) else None


def figures_3b(results: list[Result]) -> list[Figure]:
    """How each entropy reduction around a model changes the entropy at each state: the spread over attacked images.

    Of several stores with the same predictor the one with the most images is drawn.
    """
    models: dict[str, dict[str, Result]] = defaultdict(dict)
    for r in sorted(results, key=lambda r: -r.manifest.data.images):
        if r.undefended is not None and _strongest(r) is not None:
            models[weights(r) or r.label].setdefault(repr(predictor_key(r)), r)
    figures = [_entropy_changes(list(found.values())) for found in models.values()]
    return sorted((f for f in figures if f is not None), key=lambda figure: figure.name)


def _entropy_changes(defences: list[Result]) -> Figure | None:
    """Fig. 3b of one model: boxes of defended minus undefended entropy at each state, a colour per defence."""
    boxes: dict[str, list[dict[str, Any]]] = {}
    sources = []
    for r in defences:
        name = str(_strongest(r))
        rows = r.store.rows(name).filter(pl.col("state") != "final").select("image", "state", "predictor", "entropy")
        defended, undefended = (rows.filter(pl.col("predictor") == who) for who in (r.predictor, r.undefended))
        change = pl.col("entropy") - pl.col("entropy_right")
        found = defended.join(undefended, on=["image", "state"]).select("state", change=change).collect()
        by_state = found.filter(pl.col("change").is_finite()).partition_by("state", as_dict=True)
        if len(by_state) < r.states:  # a condensed store
            continue
        boxes[r.name] = [_box(by_state[str(t),]["change"].to_numpy()) for t in _states(r)]
        sources.append(f"store {r.label}: {name}; entropy, predictor {r.predictor} minus {r.undefended}")
    if not boxes:
        return None

    def paint(axes: Any) -> None:
        axes.axhline(0, color="#888888", linewidth=0.8)
        width = 0.8 / len(boxes)
        for k, (label, found) in enumerate(boxes.items()):
            colour = COLOURS[k % len(COLOURS)]
            places = [t + (k - (len(boxes) - 1) / 2) * width for t in range(1, len(found) + 1)]
            line = {"color": colour, "linewidth": 1.0}
            drawn = axes.bxp(
                found, positions=places, widths=0.75 * width, showfliers=False, patch_artist=True, manage_ticks=False,
                medianprops={"color": colour, "linewidth": 2.0}, whiskerprops=line, capprops=line,
                boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.35},
            )  # fmt: skip
            drawn["boxes"][0].set_label(label)
        axes.set_xlabel("state t")
        axes.set_ylabel("entropy change (nats)")
        legend_above(axes, boxes)

    home = next((r for r in defences if r.oblivious), defences[0])
    said = "; ".join(f"{label} {found[-1]['mean']:+.3f} at the last state" for label, found in boxes.items())
    alt = (
        "Change of the entropy by entropy reduction at each state, on attacked images: median, quartiles, and the "
        f"middle nine tenths of the images. Mean: {said}."
    )
    title = f"Fig. 3b. Entropy change by state from Sec. 3.2: {home.label}"
    room = HEIGHT + legend_room(boxes)
    return draw(f"figure-3b-{slug(home.label)}", title, alt, paint, height=room, where="; ".join(sources))


def _box(values: Any) -> dict[str, Any]:
    """A box from the quartiles, with whiskers over the middle nine tenths."""
    low, q1, median, q3, high = map(float, np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)))
    return {"whislo": low, "q1": q1, "med": median, "q3": q3, "whishi": high, "mean": float(values.mean())}


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
