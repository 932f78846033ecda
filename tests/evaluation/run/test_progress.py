"""The forecast of the remaining time."""

import pytest

from robustdeq.evaluation.run import progress
from robustdeq.evaluation.run.progress import Effort, Tracker


@pytest.fixture
def tracker(monkeypatch):
    """A tracker that has learned of work: (effort, seconds, seconds of scoring)."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def learned(*works, budget=None):
        made = Tracker(budget)
        for effort, seconds, scoring in works:
            made.begin(effort)
            now[0] += seconds
            made.finish(images=10, scoring=scoring)
        return made

    return learned


def test_nothing_is_forecast_before_anything_is_done(tracker):
    assert tracker().forecast(Effort(5.0, 5.0)) is None
    assert not tracker(budget=1.0).over_budget(Effort(5.0, 5.0))


def test_scoring_scales_with_images_and_attacking_with_cost(tracker):
    found = tracker((Effort(cost=100.0, images=10.0), 11.0, 10.0))
    assert found.forecast(Effort(cost=100.0, images=10.0)) == pytest.approx(11.0)
    # ten times the attack on as many images: by costs alone it would be 110 s
    assert found.forecast(Effort(cost=1000.0, images=10.0)) == pytest.approx(20.0)
    assert found.forecast(Effort()) == 0.0
    assert found.rate() == pytest.approx(10 / 11)


def test_earlier_work_is_weighed_by_its_size(tracker):
    works = (Effort(cost=100.0, images=10.0), 1.0, 0.0), (Effort(cost=300.0, images=10.0), 7.0, 0.0)
    assert tracker(*works).forecast(Effort(cost=50.0, images=1.0)) == pytest.approx(1.0)


def test_no_time_is_named_for_work_that_outlasts_its_forecast(tracker, monkeypatch):
    found = tracker((Effort(cost=100.0, images=10.0), 10.0, 0.0))
    under_way, all_left = Effort(cost=50.0, images=1.0), Effort(cost=80.0, images=2.0)
    now = [10.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    found.begin(under_way)
    now[0] = 14.0
    assert found.remaining(all_left, within=True) == pytest.approx(4.0)
    assert found.remaining(all_left, within=False) == pytest.approx(8.0)
    now[0] = 15.5  # 5 s were expected
    assert found.remaining(all_left, within=True) is None


@pytest.mark.parametrize(("budget", "over"), [(11.5, True), (12.5, False)])
def test_work_that_would_exceed_the_budget_is_not_started(tracker, budget, over):
    found = tracker((Effort(cost=100.0, images=10.0), 10.0, 0.0), budget=budget)
    assert found.over_budget(Effort(cost=20.0, images=1.0)) == over
    assert not found.over_budget()
