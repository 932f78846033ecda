"""What a number of images can tell: the smallest gain that they show, and how many decide an open question."""

from __future__ import annotations

from collections.abc import Callable

from robustdeq.evaluation.analysis.statistics import Difference, Share, paired_difference

MOST = 1_000_000
"""Number of images beyond which more do not help in practice."""

Forecast = Callable[[int], Share | Difference]
"""The interval that so many images would give if every share stayed as it was measured."""


def deciding(forecast: Forecast, images: int, decided: Callable[[Share | Difference], bool]) -> int | None:
    """The number of images, more than `images`, from which the interval decides; None beyond `MOST`."""
    low, high = images, images + 1
    while not decided(forecast(high)):
        low, high = high, 2 * high
        if low > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(forecast(middle)) else (middle, high)
    return high


def detectable(images: int, lost: float = 0.0) -> float:
    """The smallest gain whose interval lies above 0, as a share of the images.

    Args:
        images: Number of images.
        lost: Share of images that the better predictor gets wrong and the other one right.
    """
    down = round(lost * images)
    for up in range(down, images - down + 1):
        found = paired_difference(up, down, images)
        if found.low > 0:
            return found.value
    return 1.0
