"""A flag is raised or cleared by its whole interval, and otherwise says how many images would decide."""

import pytest

from robustdeq.evaluation.analysis.power import MOST, deciding, detectable
from robustdeq.evaluation.analysis.statistics import paired_difference, wilson
from robustdeq.evaluation.audit.flags import FLAGS, about, paired_flag, share_flag


@pytest.mark.parametrize(
    ("count", "images", "state"),
    [(1, 10, "undecided"), (0, 10, "undecided"), (0, 200, "cleared"), (1, 200, "undecided"), (9, 200, "raised")],
)
def test_a_share_is_judged_by_its_interval(count, images, state):
    flag = share_flag("large-eps", count / images, images)
    assert (flag.state, flag.value, flag.images) == (state, count / images, images)
    assert flag.low <= flag.value <= flag.high
    assert (flag.low > flag.limit, flag.high < flag.limit) == (state == "raised", state == "cleared")
    assert (flag.decides is None) == (state != "undecided")
    assert flag.masking
    assert f"{flag.low:.1%}, {flag.high:.1%}" in flag.sentence


@pytest.mark.parametrize(
    ("only_short", "only_long", "images", "state"),
    [
        (1, 0, 10, "undecided"),  # one image decides nothing
        (40, 38, 400, "undecided"),  # many images changed sides in both directions
        (0, 60, 400, "cleared"),
        (60, 10, 400, "raised"),
    ],
)
def test_more_steps_are_compared_image_by_image(only_short, only_long, images, state):
    flag = paired_flag("more-steps-hurt", only_short, only_long, images)
    assert flag.state == state
    assert flag.value == pytest.approx((only_short - only_long) / images)


@pytest.mark.parametrize(("share", "images"), [(0.0, 20), (0.05, 40), (0.004, 250)])
def test_as_many_images_as_a_flag_asks_for_decide_and_one_fewer_does_not(share, images):
    flag = share_flag("large-eps", share, images)
    count = round(share * images) / images

    def decided(number):
        found = wilson(count * number, number)
        return found.low > flag.limit or found.high < flag.limit

    assert decided(flag.decides)
    assert not decided(flag.decides - 1)
    assert f"about {about(flag.decides)} would decide" in flag.sentence


def test_a_value_at_the_limit_is_decided_by_no_number_of_images():
    limit = FLAGS["large-eps"].limit
    flag = share_flag("large-eps", limit, 200)
    assert (flag.value, flag.state, flag.decides) == (limit, "undecided", None)
    assert "more would hardly decide" in flag.sentence
    assert deciding(lambda n: wilson(0.02 * n, n), MOST - 1, lambda s: s.low > limit) is None


@pytest.mark.parametrize("images", [50, 200, 1000])
@pytest.mark.parametrize("lost", [0.0, 0.02])
def test_the_detectable_gain_is_the_smallest_whose_interval_lies_above_zero(images, lost):
    gain, down = detectable(images, lost), round(lost * images)
    up = round(gain * images) + down
    assert paired_difference(up, down, images).low > 0
    assert paired_difference(up - 1, down, images).low <= 0


def test_numbers_of_images_are_shown_with_two_digits():
    assert [about(n) for n in (7, 73, 188, 1234)] == [7, 73, 190, 1300]
