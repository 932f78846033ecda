"""Flags: measurements that make robust accuracies doubtful, each with its interval and its limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from robustdeq.evaluation.analysis.power import Forecast, deciding
from robustdeq.evaluation.analysis.statistics import Difference, Share, paired_difference, wilson

State = Literal["raised", "cleared", "undecided"]


@dataclass(frozen=True)
class Kind:
    """What a flag is about."""

    meaning: str
    """What is the case if it is raised."""
    limit: float
    """Raised if the interval lies above it, cleared if below."""
    masking: bool = False
    """Whether it means that the measured accuracies overstate robustness."""
    forbids: bool = True
    """Whether a verdict may be "stands" only when it is cleared."""


FLAGS = {
    "vanishing-gradients": Kind(
        "gradients are zero where attacks start, so white-box attacks are blind", 0.05, masking=True
    ),
    "false-gradient": Kind(
        "the gradient is not the slope of the predictor: a small step along it does not raise the loss",
        0.05,
        masking=True,
    ),
    "gradient-mode": Kind("predictions differ while gradients are recorded", 0.05, masking=True),
    "black-box-beats-white-box": Kind(
        "Square or transferred images break what no white-box attack breaks", 0.02, masking=True
    ),
    "more-steps-hurt": Kind("a long PGD breaks fewer images than one of 10 steps", 0.02, masking=True),
    "large-eps": Kind("accuracy is left at a radius that hides the image", 0.02, masking=True),
    "memory": Kind("attacked images are right only until a few pixels are replaced", 0.05, masking=True),
    "drift": Kind("predictions on the clean images are others after the attacks than before", 0.05),
    "randomness": Kind("two passes on the same image differ", 0.05, forbids=False),
    "batch-dependence": Kind("predictions depend on the other images of the batch", 0.05),
    "non-convergence": Kind(
        "the solver does not reach the equilibrium, so gradients that assume it are wrong", 0.5, forbids=False
    ),
}
"""All flags by name; docs/flags.md explains each."""


@dataclass(frozen=True)
class Flag:
    """A measured flag. Shares are of `images`; a difference is paired image by image."""

    name: str
    state: State
    value: float
    low: float
    """Lower end of the value's 95% interval."""
    high: float
    limit: float
    images: int
    """Number of images that it was measured on."""
    decides: int | None
    """Undecided: number of images that would decide if the value stayed; None if more would not."""
    masking: bool
    forbids: bool
    """Whether a verdict may be "stands" only when it is cleared."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.name} {self.state}: {self.sentence}"


def share_flag(name: str, share: float, images: int) -> Flag:
    """The flag of a share of images."""
    count = round(share * images)
    return _judged(name, wilson(count, images), lambda n: wilson(count * n / images, n))


def paired_flag(name: str, more: int, fewer: int, images: int) -> Flag:
    """The flag of a difference: images with which the finding holds less images with which its opposite does."""
    found = paired_difference(more, fewer, images)
    return _judged(name, found, lambda n: paired_difference(more * n / images, fewer * n / images, n))


def about(number: int) -> int:
    """A number of images rounded up to two digits."""
    unit = 10 ** max(len(str(number)) - 2, 0)
    return -(-number // unit) * unit


def _judged(name: str, found: Share | Difference, forecast: Forecast) -> Flag:
    kind = FLAGS[name]
    limit = kind.limit

    def decided(interval: Share | Difference) -> bool:
        return interval.low > limit or interval.high < limit

    measured = f"{found.value:.1%} [{found.low:.1%}, {found.high:.1%}] of {found.images} images"
    decides: int | None = None
    state: State
    if decided(found):
        state = "raised" if found.low > limit else "cleared"
        start = kind.meaning if state == "raised" else f"no sign that {kind.meaning}"
        sentence = f"{start}: {measured}, limit {limit:.0%}"
    else:
        state, decides = "undecided", deciding(forecast, found.images, decided)
        more = f"about {about(decides)} would" if decides else "more would hardly"
        sentence = f"too few images to say whether {kind.meaning}: {measured}, limit {limit:.0%}; {more} decide"
    low, high = found.low, found.high
    return Flag(name, state, found.value, low, high, limit, found.images, decides, kind.masking, kind.forbids, sentence)
