"""The grid and the audit on mdeq-nano and the digits."""

import dataclasses

import pytest

from robustdeq.data import load_dataset
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import audit as module
from robustdeq.evaluation import evaluate, metrics
from robustdeq.models import load
from robustdeq.recipes import merge, parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training.trainer import Trainer

pytestmark = pytest.mark.long

EPS = 0.15


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """mdeq-nano, trained on clean digits for some seconds."""
    changes = {"objective": {"kind": "standard"}, "schedule": {"epochs": 8, "pretrain_steps": 0}}
    config = parse_config(merge(read_recipe("digits-nano-pgdat"), changes))
    out = tmp_path_factory.mktemp("standard")
    Trainer(dataclasses.replace(config), out, device="cpu").fit()
    return load(out / "last")


@pytest.fixture(scope="module")
def images():
    test = load_dataset("digits").test
    return test.pixels01(slice(0, 20)), test.labels[:20]


def test_the_grid_end_to_end(standard, images, tmp_path):
    verdict = evaluate(
        EarlyState(standard, state=8), images, "grid", tmp_path / "grid", threat=Linf(0.05), shard_size=20
    )
    assert verdict.complete
    assert len(verdict.attacks) == 144
    assert verdict.clean.value > 0.7
    lowest = min(share.value for share in verdict.attacks.values())
    assert verdict.union.value <= verdict.minimum.value == lowest < verdict.clean.value
    assert metrics.strongest_by_state(verdict.store).height == 16
    subset = metrics.smallest_subset(verdict.store)
    assert metrics.union_accuracy(verdict.store, subset.attacks) == verdict.union


def test_a_defence_around_a_standard_model_falls_to_its_static_base(standard, images, tmp_path, monkeypatch):
    for name, less in {"STEPS": 10, "RESTARTS": 1, "QUERIES": 50}.items():  # to break it is easy, and time is short
        monkeypatch.setattr(module, name, less)
    defended = EarlyState(EntropyReduction(standard, every=4, steps=5, radius=EPS, step_size=EPS / 4), state=8)
    verdict = evaluate(defended, images, "audit", tmp_path / "audit", threat=Linf(EPS), batch_size=20, shard_size=20)
    found = verdict.audit
    assert found.base_union.value <= 0.05
    assert found.union.value <= found.base_union.value + 0.01
    assert found.verdict in ("broken", "masked")
