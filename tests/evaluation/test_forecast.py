"""How long an evaluation will take."""

from __future__ import annotations

import pytest

from robustdeq.evaluation.run.forecast import NOTHING, Effort, Forecast


def test_nothing_is_foretold_before_anything_is_done():
    assert Forecast().seconds(Effort(5.0, 5.0)) is None


def test_scoring_goes_by_images_and_attacking_by_cost():
    forecast = Forecast()
    forecast.learn(Effort(cost=100.0, images=10.0), seconds=11.0, scoring=10.0)
    assert forecast.seconds(Effort(cost=100.0, images=10.0)) == pytest.approx(11.0)
    # ten times the attack on as many images: by costs alone it would be 110 s
    assert forecast.seconds(Effort(cost=1000.0, images=10.0)) == pytest.approx(20.0)
    assert forecast.seconds(NOTHING) == 0.0


def test_what_was_done_is_weighed_by_its_size():
    forecast = Forecast()
    forecast.learn(Effort(cost=100.0, images=10.0), seconds=1.0, scoring=0.0)
    forecast.learn(Effort(cost=300.0, images=10.0), seconds=7.0, scoring=0.0)
    assert forecast.seconds(Effort(cost=50.0, images=1.0)) == pytest.approx(1.0)
