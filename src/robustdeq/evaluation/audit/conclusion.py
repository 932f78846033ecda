"""The verdict of an audit from its flags and accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robustdeq.evaluation.analysis.power import deciding, detectable
from robustdeq.evaluation.analysis.statistics import Difference, Share, paired_difference, wilson
from robustdeq.evaluation.audit.flags import Flag, about

Word = Literal["masked", "broken", "no-gain", "stands", "undecided"]

BROKEN = 0.05
"""Robust accuracy below which the verdict is broken."""
GAIN = 0.05
"""Gain over the static base that a verdict no-gain excludes."""
LOST = 0.02
"""Share of images that a defence may lose; announces which gain can be detected then."""


@dataclass(frozen=True)
class Conclusion:
    """A verdict with its reason."""

    verdict: Word
    reason: str
    """One sentence."""
    decides: int | None = None
    """Undecided: number of images that would decide if every share stayed; None if more images would not."""


def conclude(
    flags: Sequence[Flag], union: Share, gain: Difference | None = None, sides: tuple[int, int] = (0, 0)
) -> Conclusion:
    """The first verdict that the intervals support: masked, broken, no-gain, stands, or undecided.

    Args:
        flags: All measured flags.
        union: Accuracy under the union of all attacks.
        gain: Union accuracy minus that of the static base, paired; None without a base.
        sides: Number of images that only the predictor keeps right, and that only its base does.
    """
    masking = [flag.name for flag in flags if flag.masking and flag.state == "raised"]
    if masking:
        return Conclusion("masked", f"{_listed(masking)} raised: the accuracies overstate robustness")
    if union.high < BROKEN:
        return Conclusion("broken", f"fewer than {BROKEN:.0%} of the images survive all attacks: {union}")
    # an undecided flag of masking does not matter here: weak attacks make a defence look better, not worse
    if gain is not None and gain.low <= 0 and gain.high < GAIN:
        return Conclusion("no-gain", f"a gain of {_points(GAIN)} over the static base is excluded: {gain}")
    questions = [*_open_accuracies(union, gain, sides), *_open_flags(flags)]
    if not questions:
        shown = f"the gain over the static base is above 0: {gain}" if gain else f"{union} survive all attacks"
        return Conclusion("stands", f"{shown}, and no flag forbids it")
    needed = [decides for _, decides in questions]
    most = None if None in needed else max(n for n in needed if n is not None)
    ending = f"; about {about(most)} images would decide" if most else ""
    return Conclusion("undecided", "; ".join(text for text, _ in questions) + ending, most)


def announce(images: int, *, beside: bool) -> str:
    """What so many images can tell, said before an audit starts."""
    excluded = wilson(0, images).high
    if not beside:
        return (
            f"{images} images: if no attack breaks one, the robust accuracy lies above {1 - excluded:.1%}; if all are "
            f"broken, below {excluded:.1%}"
        )
    best, usual = detectable(images), detectable(images, LOST)
    return (
        f"{images} images can detect a gain of {_points(best)} over the static base ({_points(usual)} if the defence "
        f"also loses {LOST:.0%} of them)"
    )


def _open_accuracies(union: Share, gain: Difference | None, sides: tuple[int, int]) -> list[tuple[str, int | None]]:
    """What keeps the accuracies from deciding, with the number of images that would."""
    found: list[tuple[str, int | None]] = []
    if union.low <= BROKEN:
        count = union.value * union.images
        needed = deciding(
            lambda n: wilson(count * n / union.images, n), union.images, lambda s: s.low > BROKEN or s.high < BROKEN
        )
        found.append((f"the accuracy under all attacks, {union}, may lie below {BROKEN:.0%}", needed))
    if gain is not None and gain.low <= 0:
        images = gain.images
        needed = deciding(
            lambda n: paired_difference(sides[0] * n / images, sides[1] * n / images, n),
            images,
            lambda d: d.low > 0 or d.high < GAIN,
        )
        found.append((f"a gain of {_points(GAIN)} over the static base is neither shown nor excluded: {gain}", needed))
    return found


def _open_flags(flags: Sequence[Flag]) -> list[tuple[str, int | None]]:
    """The flags that keep a verdict from being "stands"."""
    raised = [flag.name for flag in flags if flag.forbids and flag.state == "raised"]
    undecided = [flag for flag in flags if flag.forbids and flag.state == "undecided"]
    found: list[tuple[str, int | None]] = [(f"{_listed(raised)} raised", None)] if raised else []
    if undecided:
        needed = [flag.decides for flag in undecided]
        most = None if None in needed else max(n for n in needed if n is not None)
        found.append((f"{_listed([flag.name for flag in undecided])} undecided", most))
    return found


def _listed(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _points(share: float) -> str:
    return f"{100 * share:.3g} points"
