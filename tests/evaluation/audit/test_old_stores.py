"""Audits in the repository, made by earlier versions, are judged again from their stores."""

import json
from pathlib import Path

import pytest

from robustdeq.evaluation import Store
from robustdeq.evaluation.audit.judge import FILE, read_audit

STORES = Path(__file__).parents[3] / "results/frozen/stores"
AUDITED = sorted(path.parent.name for path in STORES.glob(f"*/{FILE}"))


def test_there_are_old_audits():
    assert {"trades-defended-sign", "trades-random-defended-sign"} <= set(AUDITED)


@pytest.mark.parametrize("name", AUDITED)
def test_an_old_audit_is_judged_again_without_new_attacks(name):
    kept = json.loads((STORES / name / FILE).read_text())
    found = read_audit(Store(STORES / name))
    for field in ("clean", "union", "base_union"):
        assert getattr(found, field).value == pytest.approx(kept[field]["value"])
    assert found.gain.value == pytest.approx(kept["gain"]["value"])
    assert {"more-steps-hurt", "non-convergence", "randomness"} <= {flag.name for flag in found.flags}
    assert not found.raised


@pytest.mark.parametrize(
    ("name", "verdict"), [("trades-defended-sign", "no-gain"), ("trades-random-defended-sign", "undecided")]
)
def test_what_200_images_say_of_the_defence_along_the_sign(name, verdict):
    assert read_audit(Store(STORES / name)).verdict == verdict


def test_a_store_without_an_audit_has_none():
    assert read_audit(Store(STORES / "trades")) is None


def test_a_damaged_audit_says_what_to_do(tmp_path):
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(ValueError, match="run the audit again"):
        read_audit(Store(tmp_path))
