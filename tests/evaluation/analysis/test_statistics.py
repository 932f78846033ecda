"""Intervals, beside outside references and closed forms."""

import numpy as np
import pytest
from scipy.stats import binomtest

from robustdeq.evaluation.analysis.statistics import (
    bootstrap_difference,
    bootstrap_minimum,
    bootstrap_minimum_difference,
    wilson,
)


@pytest.mark.parametrize(("count", "images"), [(0, 10), (10, 10), (3, 10), (511, 1000), (1, 10_000)])
def test_wilson_is_scipy_s(count, images):
    share = wilson(count, images)
    reference = binomtest(count, images).proportion_ci(method="wilson")
    assert share.value == count / images
    assert (share.low, share.high) == (
        pytest.approx(reference.low, abs=1e-12),
        pytest.approx(reference.high, abs=1e-12),
    )


def test_the_bootstrap_of_one_attack_has_the_width_of_a_proportion():
    correct = np.arange(2000) % 2 == 0
    share = bootstrap_minimum(correct[:, None])
    half = 1.96 * np.sqrt(0.25 / 2000)
    assert share.value == 0.5
    assert share.low == pytest.approx(0.5 - half, abs=0.003)
    assert share.high == pytest.approx(0.5 + half, abs=0.003)


def test_the_minimum_of_many_equal_attacks_lies_lower_than_each_by_chance():
    correct = np.random.default_rng(0).random((500, 100)) < 0.5
    share = bootstrap_minimum(correct)
    assert share.value == correct.mean(axis=0).min()
    assert share.low < wilson(int(correct.sum(axis=0).min()), 500).low + 0.02
    assert share.high < 0.5


def test_a_paired_difference_is_sharper_than_two_proportions():
    a = np.arange(1000) % 2 == 0
    b = a.copy()
    b[1:21:2] = True  # ten more images
    difference = bootstrap_difference(a, b)
    half = 1.96 * np.sqrt(0.01 * 0.99 / 1000)
    assert difference.value == pytest.approx(0.01)
    assert difference.low == pytest.approx(0.01 - half, abs=0.002)
    assert difference.high == pytest.approx(wilson(10, 1000).high)  # nothing lost: the bound of what is gained
    assert difference.high - difference.low < 0.25 * (wilson(500, 1000).high - wilson(500, 1000).low) * np.sqrt(2)


def test_a_minimum_of_0_or_1_is_no_point():
    none = np.zeros((50, 3), dtype=bool)
    assert bootstrap_minimum(none) == wilson(0, 50)
    assert bootstrap_minimum(~none) == wilson(50, 50)


def test_an_attack_is_judged_on_the_images_it_was_tried_on():
    correct = np.ones((40, 2), dtype=bool)
    correct[:10, 0] = False
    correct[0, 1] = False
    tried = np.ones_like(correct)
    tried[2:, 1] = False
    share = bootstrap_minimum(correct, tried)
    assert (share.value, share.images) == (0.5, 2)
    assert share.low <= wilson(1, 2).low
    assert share.high >= wilson(1, 2).high
    assert bootstrap_minimum(correct[:, :1], tried[:, :1]) == bootstrap_minimum(correct[:, :1])


def test_no_difference_on_few_images_is_not_known_to_be_none():
    a = np.arange(50) % 2 == 0
    difference = bootstrap_difference(a, a)
    bound = wilson(0, 50).high
    assert (difference.value, difference.low, difference.high) == (0, pytest.approx(-bound), pytest.approx(bound))


def test_few_gains_and_no_loss_leave_the_sign_open():
    a = np.zeros(50, dtype=bool)
    b = a.copy()
    b[:4] = True  # McNemar's exact test: p = 1/8
    assert bootstrap_difference(a, b).low < 0 < bootstrap_difference(a, b).value


def test_a_difference_of_minima_covers_the_choice_of_the_smallest():
    images = np.arange(400)
    a = np.stack([images % 4 > 0, images % 4 != 1, images % 5 > 0], axis=1)
    b = np.stack([images % 5 > 0, images % 5 > 1], axis=1)
    found = bootstrap_minimum_difference(a, b)
    assert found.value == pytest.approx(0.6 - 0.75)
    assert found.low < found.value < found.high < 0
    assert found.high > bootstrap_difference(a[:, 0], b[:, 1]).high  # of the two that are smallest
    same = bootstrap_minimum_difference(a, a)
    assert (same.value, same.images) == (0, 400)
    assert same.low < 0 < same.high  # none gained or lost, yet of 400 images only
