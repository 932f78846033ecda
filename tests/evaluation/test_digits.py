"""The grid, the audit, AutoAttack and float32 on mdeq-nano and the digits."""

import dataclasses

import polars as pl
import pytest
import torch
from pyautoattack import AutoAttack

from robustdeq.data import load_dataset
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.suites.attacks import autoattack
from robustdeq.evaluation.suites.audit import Budget, audit_suite
from robustdeq.evaluation.suites.suite import Suite
from robustdeq.models import load
from robustdeq.recipes import merge, parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training.trainer import Trainer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """mdeq-nano, trained on clean digits for some seconds."""
    changes = {"objective": {"kind": "standard"}, "schedule": {"epochs": 8, "pretrain_steps": 0}}
    config = parse_config(merge(read_recipe("digits-nano-pgdat"), changes))
    out = tmp_path_factory.mktemp("standard")
    Trainer(dataclasses.replace(config), out, device="cpu").fit()
    return load(out / "last")


def digits(count):
    test = load_dataset("digits").test
    return test.pixels01(slice(0, count)), test.labels[:count]


def test_the_grid_end_to_end(standard, tmp_path):
    verdict = evaluate(
        EarlyState(standard, state=8), digits(20), "grid", tmp_path / "grid", threat=Linf(0.05), shard_size=20
    )
    assert verdict.complete
    assert len(verdict.attacks) == 144
    assert verdict.clean.value > 0.7
    lowest = min(share.value for share in verdict.attacks.values())
    assert verdict.union.value <= verdict.minimum.value == lowest < verdict.clean.value
    assert metrics.strongest_by_state(verdict.store).height == 16


def test_a_defence_around_a_standard_model_falls_to_its_static_base(standard, tmp_path):
    budget = Budget(
        steps=12, search=5, restarts=1, rounds=1, square={"n_queries": 5}
    )  # to break it is easy, and time is short
    eps = 0.2  # at 0.15 a handful of images decides, and which they are depends on how the machine rounds the training
    defended = EarlyState(EntropyReduction(standard, every=2, steps=10, radius=eps, step_size=eps / 4), state=8)
    size = {"batch_size": 100, "shard_size": 100}
    verdict = evaluate(
        defended, digits(100), lambda c: audit_suite(c, budget), tmp_path / "audit", threat=Linf(eps), **size
    )
    found = verdict.audit
    assert found.clean.value > 0.7
    assert found.base_union.value <= 0.1
    assert found.union.value <= found.base_union.value + 0.01  # one point: one image
    assert [flag.name for flag in found.raised] == ["non-convergence"]  # nothing is masked
    assert found.verdict in ("broken", "no-gain")


def test_other_batch_and_shard_sizes_change_one_image_in_a_thousand_in_float32(standard, tmp_path):
    attack = "{{name: i{0}, attack: pgd, options: {{steps: 4, step_size: 0.04}}, oracle: unrolled, {1}}}"
    oracle = "oracle_options: {{state: {}, steps: 1}}"
    attacks = ", ".join(attack.format(i, oracle.format(i)) for i in (1, 3, 8))
    (tmp_path / "suite.yaml").write_text(f"attacks: [{attacks}]")
    outcomes = []
    for batch_size, shard_size in ((335, 335), (17, 70)):
        sizes = {"batch_size": batch_size, "shard_size": shard_size}
        predictor, out = EarlyState(standard, state=8), tmp_path / f"{batch_size}"
        store = evaluate(predictor, digits(335), tmp_path / "suite.yaml", out, threat=Linf(0.08), **sizes).store
        rows = store.rows().filter(pl.col("deployed")).sort("attack", "image").collect()
        outcomes.append(rows["prediction"].to_numpy())
        assert store.manifest.dtype == "float32"
        assert 0.2 < rows["success"].mean() < 0.8
    one, other = outcomes
    assert len(one) == len(other) == 1005
    assert (one != other).sum() <= 1


def test_autoattack_on_the_deployed_predictor_agrees_with_pyautoattack_called_directly(standard, tmp_path):
    # a quarter of the standard iterations and less on both sides: the standard ones, on a network without a solver, are
    # compared in test_own_predictor.py. Both see the predictor's own gradient (direct), not the ready-made attack's,
    # which has longer unrolling and breaks a few images more.
    budget = {"n_iter": 25, "targets": 2, "n_queries": 50}

    def short(context):
        spec = autoattack(context, with_grid=False)
        return Suite("short", [dataclasses.replace(spec, name="short", oracle="direct", options=budget)])

    predictor, (x, y) = EarlyState(standard, state=8), digits(200)
    store = evaluate(predictor, (x, y), short, tmp_path / "out", threat=Linf(0.08), batch_size=200, seed=0).store
    ours = store.rows("short").filter(pl.col("deployed") & ~pl.col("success")).collect().height
    library = AutoAttack(predictor, norm="Linf", eps=0.08, version="standard", device="cpu", seed=0)
    library.apgd.n_iter = library.apgd_targeted.n_iter = library.fab.n_iter = budget["n_iter"]
    library.apgd_targeted.n_target_classes = library.fab.n_target_classes = budget["targets"]
    library.square.n_queries = budget["n_queries"]
    adversarial, _ = library.run_standard_evaluation(x, y, batch_size=200)
    with torch.no_grad():
        theirs = int((predictor(adversarial).argmax(1) == y).sum())
    assert 20 < ours < 180
    assert abs(ours - theirs) <= 2
