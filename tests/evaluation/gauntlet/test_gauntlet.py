"""Every planted defence gets the verdict and the flags that it must get."""

import pytest

from tests.evaluation.gauntlet.cases import CASES


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_audit_is_right_about(case, tmp_path):
    found = case.audit(tmp_path / "store").audit
    assert found.verdict in case.verdicts, found.table()
    assert set(case.flags) <= {flag.name for flag in found.raised}, found.table()
    if case.gain:
        assert found.gain.low > 0
        assert not found.raised
    else:
        assert found.verdict != "stands"


def test_the_gauntlet_has_at_least_twelve_false_defences_and_four_true_gains():
    assert sum(not case.gain for case in CASES) >= 12
    assert sum(case.gain for case in CASES) >= 4
    assert all(case.verdicts == ("stands",) for case in CASES if case.gain)
    assert all("stands" not in case.verdicts for case in CASES if not case.gain)
