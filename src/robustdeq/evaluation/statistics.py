"""Intervals of shares and of minima of shares."""

from __future__ import annotations

from dataclasses import dataclass
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


def wilson(count: int, images: int) -> Share:
    """A proportion with Wilson's score interval."""
    if images == 0:
        return Share(float("nan"), 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    p = count / images
    centre = (p + z * z / (2 * images)) / (1 + z * z / images)
    half = z / (1 + z * z / images) * np.sqrt(p * (1 - p) / images + z * z / (4 * images * images))
    low = 0.0 if count == 0 else float(centre - half)
    high = 1.0 if count == images else float(centre + half)
    return Share(p, low, high, images)


def bootstrap_minimum(correct: NDArray[np.bool_], *, seed: int = 0) -> Share:
    """The smallest column mean of (images, attacks), with its percentile interval over resampled images."""
    if correct.size == 0:
        return Share(float("nan"), 0.0, 1.0, len(correct))
    low, high = _percentiles(_resampled_means(correct.astype(np.float32), seed).min(axis=1))
    return Share(float(correct.mean(axis=0).min()), low, high, len(correct))


@dataclass(frozen=True)
class Difference:
    """Of two accuracies on the same images, with its 95% interval."""

    value: float
    low: float
    high: float
    images: int


def bootstrap_difference(a: NDArray[np.bool_], b: NDArray[np.bool_], *, seed: int = 0) -> Difference:
    """mean(b) - mean(a) of paired outcomes, with its percentile interval over resampled images."""
    paired = b.astype(np.float32) - a.astype(np.float32)
    low, high = _percentiles(_resampled_means(paired[:, None], seed)[:, 0])
    return Difference(float(paired.mean()), low, high, len(paired))


def _resampled_means(values: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """(RESAMPLES, columns): column means over images drawn with replacement."""
    generator = np.random.default_rng(seed)
    images = len(values)
    means = np.empty((RESAMPLES, values.shape[1]))
    for begin in range(0, RESAMPLES, 100):  # weights of a hundred resamples at a time bound the memory
        weights = generator.multinomial(images, np.full(images, 1 / images), size=100)
        means[begin : begin + 100] = weights.astype(np.float32) @ values / images
    return means


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
