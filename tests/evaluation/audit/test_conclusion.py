"""A verdict is what the intervals support; where they support none, it is undecided."""

import numpy as np
import pytest

from robustdeq.evaluation.analysis.statistics import bootstrap_difference, wilson
from robustdeq.evaluation.audit.conclusion import announce, conclude
from robustdeq.evaluation.audit.flags import share_flag

MASKED = share_flag("large-eps", 0.5, 200)
OPEN = share_flag("large-eps", 0.0, 50)
CLEAR = share_flag("large-eps", 0.0, 400)
COUPLED = share_flag("batch-dependence", 1.0, 100)
RANDOM = share_flag("randomness", 1.0, 100)


def beside_base(gained, lost, images, flags=(CLEAR,), kept=None):
    """The conclusion on a defence that keeps a half of the images, or `kept`, before gains and losses."""
    base, own = np.zeros(images, dtype=bool), np.zeros(images, dtype=bool)
    kept = images // 2 if kept is None else kept
    base[:kept] = own[:kept] = True
    own[:lost] = False
    own[kept : kept + gained] = True
    gain = bootstrap_difference(base, own)
    assert gain.value == pytest.approx((gained - lost) / images)
    return conclude(flags, wilson(int(own.sum()), images), gain, (gained, lost))


@pytest.mark.parametrize(
    ("survivors", "images", "flags", "verdict"),
    [
        (100, 200, [CLEAR], "stands"),
        (100, 200, [CLEAR, RANDOM], "stands"),  # attacked in expectation
        (100, 200, [CLEAR, COUPLED], "undecided"),
        (100, 200, [OPEN], "undecided"),
        (100, 200, [MASKED], "masked"),
        (0, 200, [MASKED], "masked"),
        (0, 200, [OPEN], "broken"),
        (0, 10, [CLEAR], "undecided"),
        (1, 200, [CLEAR], "broken"),
        (10, 200, [CLEAR], "undecided"),  # one in twenty
    ],
)
def test_the_verdict_without_a_base(survivors, images, flags, verdict):
    assert conclude(flags, wilson(survivors, images)).verdict == verdict


@pytest.mark.parametrize(
    ("gained", "lost", "images", "verdict"),
    [
        (10, 6, 200, "undecided"),  # +2 points [-1, +5.5]: neither 0 nor 5 points are excluded
        (16, 0, 200, "stands"),
        (1, 0, 200, "no-gain"),
        (0, 0, 200, "no-gain"),
        (0, 0, 10, "undecided"),
        (0, 30, 200, "no-gain"),  # the defence does harm
        (90, 80, 4_000, "no-gain"),
        (120, 40, 4_000, "stands"),
    ],
)
def test_no_gain_is_said_only_where_a_gain_would_have_been_seen(gained, lost, images, verdict):
    found = beside_base(gained, lost, images)
    assert found.verdict == verdict
    assert (found.decides is not None) == (verdict == "undecided")


def test_an_undecided_flag_of_masking_is_neither_masked_nor_ignored():
    found = beside_base(40, 0, 200, [OPEN])
    assert (found.verdict, found.decides) == ("undecided", OPEN.decides)
    assert "large-eps is undecided" in found.reason
    assert beside_base(0, 0, 200, [OPEN]).verdict == "no-gain"  # masking would make it look better than it is


def test_an_undecided_verdict_says_how_many_images_decide_it():
    found = beside_base(10, 6, 200)
    assert 200 < found.decides < 1_000
    scale = -(-found.decides // 200) + 1
    assert beside_base(10 * scale, 6 * scale, 200 * scale).verdict != "undecided"


def test_a_raised_flag_that_is_no_masking_cannot_be_decided_by_images():
    found = conclude([COUPLED], wilson(100, 200))
    assert (found.verdict, found.decides) == ("undecided", None)
    assert "batch-dependence is raised" in found.reason


def test_what_so_many_images_can_tell_is_said_before():
    assert announce(200, beside=True) == (
        "200 images can detect a gain of 2.5 points over the static base (4 points if the defence also loses 2% of "
        "them)"
    )
    assert "below 27.8%" in announce(10, beside=False)
