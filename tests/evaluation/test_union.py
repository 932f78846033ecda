"""`union`: the same answer as the whole grid, with less work."""

import polars as pl
import pytest

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.store.sources import Source
from robustdeq.evaluation.suites import attacks as repertoire
from robustdeq.evaluation.suites import stored as transfer
from robustdeq.evaluation.suites.context import Setting
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import Linf
from tests.evaluation import predictors
from tests.evaluation.conftest import UNROLLINGS


@pytest.fixture(scope="module")
def union(deployed, images, tmp_path_factory):
    out = tmp_path_factory.mktemp("union") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repertoire, "UNROLLINGS", UNROLLINGS)
        threat = Linf(predictors.EPS)
        # batches with room for four attacks on a shard, which images that leave do not share
        return evaluate(deployed, images, "grid", out, threat=threat, batch_size=40, shard_size=10, union=True)


def broken(store):
    return store.rows().filter(pl.col("deployed") & pl.col("success")).select("image").collect()["image"].unique()


def test_breaks_the_images_that_the_whole_grid_breaks(union, grid_verdict):
    wrong = grid_verdict.store.clean().filter(pl.col("deployed") & ~pl.col("correct")).collect()["image"]
    assert set(broken(union.store)) | set(wrong) == set(broken(grid_verdict.store)) | set(wrong)
    assert union.union == grid_verdict.union


def test_attacks_fewer_images(union, grid_verdict):
    counts = [v.store.rows().filter(pl.col("deployed")).collect().height for v in (union, grid_verdict)]
    assert counts[0] < counts[1] == 12 * 16


def test_an_attack_outside_the_threat_breaks_nothing_of_it(deployed, images, tmp_path):
    suite = tmp_path / "own.yaml"
    far = "{name: far, attack: pgd, options: {steps: 1, step_size: 0.4}, eps: 0.4}"
    near = "{name: near, attack: pgd, options: {steps: 2, step_size: 0.02}}"
    suite.write_text(f"attacks: [{far}, {near}]\n")
    verdict = evaluate(deployed, images, suite, tmp_path / "s", threat=Linf(predictors.EPS), union=True)
    tried = verdict.store.rows("near").filter(pl.col("deployed") & (pl.col("predictor") == "deployed")).collect()
    assert tried.height == verdict.clean.value * 16  # the cheaper attack at 0.4 came first, and took no image away
    assert verdict.union.value == 1 - (16 - tried.height + tried["success"].sum()) / 16
    assert verdict.bounds.low == verdict.bounds.high == verdict.union.value


def test_sanity_attacks_of_a_source_are_no_transfer(deployed, images, tmp_path):
    source = Store(tmp_path / "source")
    setting = Setting(Subject(deployed), Linf(predictors.EPS), data={"images": 2, "name": "d", "sha256": "x"})
    specs = [repertoire.ready(setting), repertoire.ready(setting, name="large-eps", group="sanity", eps=0.5)]
    configs = {spec.name: spec.as_json() for spec in specs}
    source.write_manifest(
        {"attacks": configs, "data": dict(setting.data), "model": {"hash": "h"}, "shard_size": 2, "union": False}
    )
    for name in configs:
        source.images_path(name, 0).parent.mkdir(parents=True)
        source.images_path(name, 0).touch()
    assert [spec.name for spec in transfer.stored_attacks(Source(source.folder, "source", "source"), setting.data)] == [
        "from.source.pgd-ready"
    ]
