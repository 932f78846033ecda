"""Differences over images and training seeds, on simulated trainings whose true difference is known."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from robustdeq.evaluation.analysis.seeds import hierarchical_difference


def trainings(generator, difficulty, level, *, between, count=3):
    """Outcomes of `count` trainings: their accuracies scatter by `between` around `level`, and images by difficulty."""
    accuracy = level + between * generator.standard_normal(count)
    return difficulty[None] + 0.1 * generator.standard_normal((count, len(difficulty))) < accuracy[:, None]


@pytest.mark.parametrize("between", [0.0, 0.02, 0.1])
def test_the_interval_covers_the_true_difference_as_often_as_it_says(between):
    generator, covered = np.random.default_rng(0), []
    for _ in range(200):
        difficulty = generator.uniform(size=400)
        a, b = (trainings(generator, difficulty, level, between=between) for level in (0.4, 0.45))
        found = hierarchical_difference(a, b)
        covered.append(found.low <= 0.05 <= found.high)
    assert np.mean(covered) >= 0.92


def half_width(found):
    return (found.high - found.low) / 2


def test_where_trainings_scatter_much_it_is_welch_s_interval_of_their_accuracies():
    generator = np.random.default_rng(0)
    difficulty = generator.uniform(size=2000)
    a, b = (trainings(generator, difficulty, 0.4, between=0.1) for _ in range(2))
    welch = ttest_ind(b.mean(axis=1), a.mean(axis=1), equal_var=False).confidence_interval()
    assert half_width(hierarchical_difference(a, b)) == pytest.approx(half_width(welch), rel=0.05)


def test_where_all_trainings_agree_it_is_the_paired_interval_over_images():
    generator = np.random.default_rng(1)  # other numbers than those that resample
    a, b = (np.tile(generator.random(2000) < level, (3, 1)) for level in (0.4, 0.45))
    expected = 1.96 * np.std(b[0].astype(float) - a[0]) / np.sqrt(2000)
    assert half_width(hierarchical_difference(a, b)) == pytest.approx(expected, rel=0.05)


def test_methods_may_have_different_numbers_of_trainings():
    generator = np.random.default_rng(0)
    a, b = (generator.random((count, 100)) < 0.5 for count in (2, 4))
    assert hierarchical_difference(a, b).value == pytest.approx(b.mean() - a.mean())


def test_equal_outcomes_do_not_claim_certainty():
    same = np.ones((3, 50), dtype=bool)
    found = hierarchical_difference(same, same)
    assert found.value == 0
    assert found.low < -0.05
    assert found.high > 0.05


@pytest.mark.parametrize("shape", [(1, 50), (3, 49), (50,)])
def test_one_training_or_other_images_are_refused(shape):
    with pytest.raises(ValueError, match="at least two trainings"):
        hierarchical_difference(np.ones((3, 50), dtype=bool), np.ones(shape, dtype=bool))
