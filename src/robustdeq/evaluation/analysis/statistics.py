"""95% intervals of shares, of minima of shares, and of their differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Share:
    """A share of images with its 95% interval."""

    value: float
    low: float
    high: float
    images: int

    def __str__(self) -> str:
        return f"{self.value:.2%} [{self.low:.2%}, {self.high:.2%}]"


def wilson(count: float, images: int) -> Share:
    """The share count / images with Wilson's score interval; a count that is no whole number belongs to a forecast."""
    if images == 0:
        return Share(float("nan"), 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    p = count / images
    centre = (p + z * z / (2 * images)) / (1 + z * z / images)
    half = z / (1 + z * z / images) * np.sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    low = 0.0 if count == 0 else float(centre - half)
    high = 1.0 if count == images else float(centre + half)
    return Share(p, low, high, images)


def bootstrap_minimum(correct: NDArray[np.bool_], tried: NDArray[np.bool_] | None = None, *, seed: int = 0) -> Share:
    """The smallest column mean of (images, attacks), with an interval that covers the choice of the smallest.

    The interval spans the percentiles of the minimum over resampled images and Wilson's interval of the smallest
    column: the resampled interval alone of a share of 0 or 1 is a single point, however few the images.

    Args:
        correct: Whether each image is correct under each attack, (images, attacks).
        tried: Whether each attack was run on each image; means are over these. All if not given.
        seed: Seed of the resampling.
    """
    tried = np.ones_like(correct) if tried is None else tried
    used = tried.any(axis=1)
    correct, tried = correct[used][:, tried.any(axis=0)], tried[used][:, tried.any(axis=0)]
    if correct.size == 0:
        return Share(float("nan"), 0.0, 1.0, 0)
    counts, images = (correct & tried).sum(axis=0), tried.sum(axis=0)
    smallest = int((counts / images).argmin())
    share = wilson(int(counts[smallest]), int(images[smallest]))
    means = resampled_means((correct & tried).astype(np.float32), seed)
    if not tried.all():
        drawn = resampled_means(tried.astype(np.float32), seed)  # the same draws
        nowhere = np.full_like(drawn, np.inf)  # an attack without drawn images is not the smallest
        means = np.divide(means, drawn, out=nowhere, where=drawn > 0)
    low, high = _percentiles(means.min(axis=1))
    return Share(share.value, min(low, share.low), max(high, share.high), share.images)


@dataclass(frozen=True)
class Difference:
    """The difference of two accuracies on the same images, with its 95% interval."""

    value: float
    low: float
    high: float
    images: int

    def __str__(self) -> str:
        return f"{self.value:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"


def bootstrap_difference(a: NDArray[np.bool_], b: NDArray[np.bool_], *, seed: int = 0) -> Difference:
    """mean(b) - mean(a) of paired outcomes, with a conservative interval.

    The interval spans the percentiles over resampled images and `paired_difference`. The resampled interval alone of no
    gain and no loss is a single point, however few the images.
    """
    counted = paired_difference(int((b & ~a).sum()), int((a & ~b).sum()), len(a))
    signs = b.astype(np.float32) - a.astype(np.float32)
    low, high = _percentiles(resampled_means(signs[:, None], seed)[:, 0])
    return Difference(counted.value, min(low, counted.low), max(high, counted.high), len(a))


def paired_difference(gained: float, lost: float, images: int) -> Difference:
    """The share of images gained minus the share lost, with the interval that follows from Wilson's of the two.

    The distances of their bounds from their values add up in squares (Newcombe's method for paired shares).
    """
    up, down = wilson(gained, images), wilson(lost, images)
    value = up.value - down.value
    below = float(np.hypot(up.value - up.low, down.high - down.value))
    above = float(np.hypot(up.high - up.value, down.value - down.low))
    return Difference(value, value - below, value + above, images)


def bootstrap_minimum_difference(a: NDArray[np.bool_], b: NDArray[np.bool_], *, seed: int = 0) -> Difference:
    """The smallest column mean of b minus that of a, both (images, attacks) of the same images.

    The interval spans the percentiles over resampled images, with the smallest column chosen in each resample, and
    `bootstrap_difference` of the two smallest columns.
    """
    fixed = bootstrap_difference(*(c[:, int(c.mean(axis=0).argmin())] for c in (a, b)), seed=seed)
    left, right = (resampled_means(c.astype(np.float32), seed).min(axis=1) for c in (a, b))  # the same draws
    low, high = _percentiles(right - left)
    return Difference(fixed.value, min(low, fixed.low), max(high, fixed.high), len(a))


def resampled_means(values: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Column means over images drawn with replacement, (RESAMPLES, columns)."""
    images = len(values)
    return np.concatenate([weights @ values / images for weights in _draws(images, seed)]).astype(np.float64)


@lru_cache(maxsize=2)
def _draws(images: int, seed: int) -> list[NDArray[np.float32]]:
    """How often each image is drawn in each resample, a hundred resamples at a time."""
    generator, share = np.random.default_rng(seed), np.full(images, 1 / images)
    blocks = [generator.multinomial(images, share, size=100) for _ in range(0, RESAMPLES, 100)]
    return [block.astype(np.float32) for block in blocks]


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
