"""A part of the campaign; `make hostile` runs all of it."""

import warnings

import pytest

from robustdeq.models import CheckpointError
from tests.hostile.campaign import Lost, Silent, judged, run
from tests.hostile.generators import KINDS

CASES = {"images": 2000, "checkpoints": 200, "recipes": 100, "suites": 250, "stores": 250, "trainings": 700}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_cases_are_answered_or_refused_in_a_sentence(kind, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tally = run(kind, KINDS[kind], tmp_path / "cases", cases=CASES.get(kind, 200), seed=20)
    assert not tally.wrong, tally.examples
    assert tally.counts["answered"] + tally.counts["refused"] == tally.cases


def fails(error):
    def case():
        raise error

    return case


def test_the_campaign_sees_tracebacks_hangs_silent_changes_and_lost_rows():
    def hangs():
        while True:
            pass

    assert judged(hangs, limit=0.05)[0] == "hang"
    assert judged(fails(Silent("x")))[0] == "silent"
    assert judged(fails(Lost("x")))[0] == "lost"
    assert judged(fails(ValueError("a sentence that is not ours")))[0] == "traceback"
    assert judged(fails(KeyError("x")))[0] == "traceback"
    assert judged(lambda: CheckpointError("a sentence"))[0] == "answered"
    from robustdeq.threat import number

    assert judged(lambda: number("x"))[0] == "refused"
