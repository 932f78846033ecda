"""The speed of a training is that of its last steps, and the time left counts validations apart."""

import pytest

from robustdeq.training.pace import WINDOW, Pace


def test_the_speed_is_that_of_the_last_steps_of_the_phase():
    pace = Pace()
    for _ in range(500):
        pace.stepped("pretrain", 0.1)
    assert pace.step() == pytest.approx(0.1)
    pace.stepped("train", 2.0)
    assert pace.step() == 2.0  # nothing of the cheap ones is left
    for _ in range(WINDOW):
        pace.stepped("train", 4.0)
    assert pace.step() == 4.0


def test_validations_count_apart():
    pace = Pace()
    pace.stepped("train", 2.0)
    pace.validated(30.0)
    assert pace.remaining(steps=10, validations=3) == 110.0
    assert pace.remaining(steps=0, validations=0) == 0.0


def test_before_the_first_step_nothing_is_known():
    assert Pace().step() == 0.0
