"""Pages of the most attacked images, with the entropy along their states: clean, attacked, defended."""

from __future__ import annotations

import base64
import io
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image

from robustdeq.evaluation.store.files import Images
from robustdeq.evaluation.suites.variants import DEFAULT
from robustdeq.report.figures.drawing import Figure, draw
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.complete import finished, once

SHOWN = 6
"""Images per store."""
BESIDE = (DEFAULT, "entropy-paper")
"""The defences, the best first, that suite paper scores or scored the images of an undefended model on."""
AMPLIFIED = 16
"""By how much perturbations are shown larger than they are."""


@dataclass(frozen=True)
class Reading:
    """What a predictor says about the image before or after the attack."""

    word: str
    """clean, attacked, or defended."""
    label: str
    confidence: float
    """Probability of this label."""
    right: bool


@dataclass(frozen=True)
class Picture:
    """One attacked image and the entropy of the prediction along its states."""

    number: int
    """Position in the test order."""
    label: str
    prediction: str
    attack: str
    broken_by: int
    """Number of attacks under which the deployed predictor is wrong."""
    of: int
    """Number of finished attacks."""
    png: str
    """The attacked image as PNG, base64."""
    clean_png: str | None
    """The image before the attack, if the store keeps it."""
    difference_png: str | None
    """Grey plus `AMPLIFIED` times what the attack changed, if the store keeps the clean image."""
    readings: list[Reading]
    traces: Figure


@dataclass(frozen=True)
class ImagePage:
    """The stores that were evaluated on the same images."""

    name: str
    title: str
    groups: list[tuple[Result, list[Picture]]]


def make_pages(sources: Sources) -> list[ImagePage]:
    """One page for each set of images whose adversarial images are kept."""
    sets: dict[str, list[Result]] = defaultdict(list)
    for r in sources.deployed:
        sets[r.manifest.data.sha256].append(r)
    pages = []
    for digest, results in sorted(sets.items()):
        groups = [(r, pictures) for r in results if (pictures := worst_pictures(r))]
        data = results[0].manifest.data
        if groups:
            title = f"The images attacked worst: {data.name}, {data.split}, {data.images} images"
            pages.append(ImagePage(f"images-{digest}", title, groups))
    return pages


@once
def worst_pictures(r: Result) -> list[Picture]:
    """The images that most attacks break, each under the kept attack with the lowest margin."""
    complete = finished(r)
    kept = [name for name in complete if r.store.has_images(name)]
    if not kept:
        return []
    deployed = (pl.col("predictor") == "deployed") & pl.col("deployed")
    ranking = (
        r.store.rows(complete)
        .filter(deployed)
        .group_by("image")
        .agg(broken=pl.col("success").sum(), margin=pl.col("margin").mean())
        .join(r.store.clean().filter(deployed & pl.col("correct")).select("image"), on="image")
        .sort(["broken", "margin", "image"], descending=[True, False, False])
        .head(SHOWN)
        .collect()
    )
    pictures, clean_kept = [], r.store.has_images(None)
    for row in ranking.iter_rows(named=True):
        mine = pl.col("image") == row["image"]
        shard = row["image"] // r.manifest.shard_size
        rows = r.store.rows(kept).filter(deployed & mine).sort("margin", "attack").head(1).collect()
        attack, found = rows["attack"][0], rows.row(0, named=True)
        after = _pixels(r.store.images(attack, shard), row["image"])
        before = _pixels(r.store.images(None, shard), row["image"]) if clean_kept else None
        pictures.append(
            Picture(
                number=row["image"],
                label=_class(r, found["label"]),
                prediction=_class(r, found["prediction"]),
                attack=attack,
                broken_by=row["broken"],
                of=len(complete),
                png=_png(after),
                clean_png=None if before is None else _png(before),
                difference_png=None if before is None else _png(0.5 + AMPLIFIED * (after - before)),
                readings=_readings(r, attack, row["image"]),
                traces=_traces(r, attack, row["image"]),
            )
        )
    return pictures


def _class(r: Result, label: int) -> str:
    classes = r.manifest.model.metadata.get("classes")
    if label < 0:
        return "none (not finite)"
    return str(classes[label] if isinstance(classes, list) and label < len(classes) else label)


def _pixels(images: Images, image: int) -> NDArray[np.float32]:
    places, pixels = images
    return pixels.numpy()[int(np.flatnonzero(places.numpy() == image)[0])]


def _png(values: NDArray[np.float32]) -> str:
    picture = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(picture[:, :, 0] if picture.shape[2] == 1 else picture).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _readings(r: Result, attack: str, image: int) -> list[Reading]:
    """What is predicted at the deployed state: clean, attacked, and by the defence on the attacked image."""
    mine, (undefended, defended) = (pl.col("image") == image) & pl.col("deployed"), _pair(r)
    asked = [("clean", r.store.clean(), undefended), ("attacked", r.store.rows(attack), undefended)]
    asked += [] if defended is None else [("defended", r.store.rows(attack), defended)]
    found = []
    for word, rows, predictor in asked:
        row = rows.filter(mine & (pl.col("predictor") == predictor)).collect().row(0, named=True)
        right = row["prediction"] == row["label"]
        # margin: logit of the label minus the largest other one; loss: cross-entropy at the label
        confidence = math.exp(-row["loss"] - (0 if right else row["margin"]))
        found.append(Reading(word, _class(r, row["prediction"]), confidence, right))
    return found


def _pair(r: Result) -> tuple[str, str | None]:
    """The undefended predictor of a store, and its defence if there is one."""
    if r.undefended is not None:
        return r.undefended, r.predictor
    return r.predictor, next((name for name in BESIDE if r.entropy is None and name in r.manifest.predictors), None)


def _traces(r: Result, attack: str, image: int) -> Figure:
    """Entropy along the states; "defended" is that of the defended predictor on the attacked image."""
    mine = pl.col("image") == image
    clean = r.store.clean().filter(mine & (pl.col("state") != "final")).collect()
    attacked = r.store.rows(attack).filter(mine & (pl.col("state") != "final")).collect()
    undefended, defended = _pair(r)
    lines = {"clean": _line(clean, undefended), "attacked": _line(attacked, undefended)}
    if defended is not None:
        lines["defended"] = _line(attacked, defended)

    def paint(axes: Any) -> None:
        for word, (states, values) in lines.items():
            axes.plot(states, values, marker="o", markersize=3, label=word)
        axes.set_xlabel("state t")
        axes.set_ylabel("entropy (nats)")
        axes.set_ylim(0, 1.1 * max((v for _, values in lines.values() for v in values if v == v), default=1.0))
        axes.legend(fontsize=8)

    ends = ", ".join(f"{word} {values[-1]:.2f}" for word, (_, values) in lines.items() if values)
    alt = f"Entropy of the prediction along the states for image {image}; at the last state: {ends} nats."
    where = f"store {r.label}: clean and {attack}; image {image}; entropy of predictor {undefended}"
    where += f" (defended: {defended})" if defended is not None else ""
    return draw(f"trace-{r.label}-{image}", f"Image {image}", alt, paint, width=3.6, height=2.4, where=where)


def _line(rows: pl.DataFrame, predictor: str) -> tuple[list[int], list[float]]:
    mine = rows.filter(pl.col("predictor") == predictor).with_columns(pl.col("state").cast(pl.Int32)).sort("state")
    return mine["state"].to_list(), mine["entropy"].to_list()
