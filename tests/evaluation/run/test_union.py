"""`union`: the same answer as the whole grid, with less work."""

import polars as pl
import pytest

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.store.sources import Source, stored_attacks
from robustdeq.threat import Linf
from tests.evaluation import predictors
from tests.evaluation.conftest import UNROLLINGS
from tests.evaluation.manifests import data, manifest, record


@pytest.fixture(scope="module")
def union(deployed, images, tmp_path_factory):
    out = tmp_path_factory.mktemp("union") / "store"
    options = {"threat": Linf(predictors.EPS), "unrollings": UNROLLINGS, "union": True}
    # a batch would hold four attacks on a shard, but under union attacks do not share batches
    return evaluate(deployed, images, "grid", out, batch_size=40, shard_size=10, **options)


def broken(store):
    return store.rows().filter(pl.col("deployed") & pl.col("success")).select("image").collect()["image"].unique()


def test_union_breaks_the_images_that_the_whole_grid_breaks(union, grid_verdict):
    wrong = grid_verdict.store.clean().filter(pl.col("deployed") & ~pl.col("correct")).collect()["image"]
    assert set(broken(union.store)) | set(wrong) == set(broken(grid_verdict.store)) | set(wrong)
    assert union.union == grid_verdict.union


def test_union_attacks_fewer_images(union, grid_verdict):
    counts = [v.store.rows().filter(pl.col("deployed")).collect().height for v in (union, grid_verdict)]
    assert counts[0] < counts[1] == 12 * 16


def test_an_attack_outside_the_threat_breaks_no_image(deployed, images, tmp_path):
    suite = tmp_path / "own.yaml"
    far = "{name: far, attack: pgd, options: {steps: 1, step_size: 0.4}, eps: 0.4}"
    near = "{name: near, attack: pgd, options: {steps: 2, step_size: 0.02}}"
    suite.write_text(f"attacks: [{far}, {near}]\n")
    verdict = evaluate(deployed, images, suite, tmp_path / "s", threat=Linf(predictors.EPS), union=True)
    tried = verdict.store.rows("near").filter(pl.col("deployed") & (pl.col("predictor") == "deployed")).collect()
    assert tried.height == verdict.clean.value * 16  # the cheaper attack at 0.4 came first, and took no image away
    assert verdict.union.value == 1 - (16 - tried.height + tried["success"].sum()) / 16
    assert verdict.bounds.low == verdict.bounds.high == verdict.union.value


def test_sanity_attacks_of_a_source_are_not_transferred(tmp_path):
    source = Store(tmp_path / "source")
    source.write_manifest(manifest([record("pgd-ready"), record("large-eps", group="sanity", eps=0.5)]))
    for name in source.attacks:
        source.images_path(name, 0).parent.mkdir(parents=True)
        source.images_path(name, 0).touch()
    specs = stored_attacks(Source(source.folder, "source", "source"), data())
    assert [spec.name for spec in specs] == ["from.source.pgd-ready"]
