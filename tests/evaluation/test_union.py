"""`union`: the same answer as the whole grid, with less work."""

import polars as pl
import pytest

from robustdeq.evaluation import evaluate, suites
from robustdeq.threat import Linf
from tests.evaluation import predictors
from tests.evaluation.conftest import UNROLLINGS


@pytest.fixture(scope="module")
def union(deployed, images, tmp_path_factory):
    out = tmp_path_factory.mktemp("union") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suites, "UNROLLINGS", UNROLLINGS)
        threat = Linf(predictors.EPS)
        return evaluate(deployed, images, "grid", out, threat=threat, batch_size=5, shard_size=10, union=True)


def broken(store):
    return store.rows().filter(pl.col("deployed") & pl.col("success")).select("image").collect()["image"].unique()


def test_breaks_the_images_that_the_whole_grid_breaks(union, grid_verdict):
    wrong = grid_verdict.store.clean().filter(pl.col("deployed") & ~pl.col("correct")).collect()["image"]
    assert set(broken(union.store)) | set(wrong) == set(broken(grid_verdict.store)) | set(wrong)
    assert union.union == grid_verdict.union


def test_attacks_fewer_images(union, grid_verdict):
    counts = [v.store.rows().filter(pl.col("deployed")).collect().height for v in (union, grid_verdict)]
    assert counts[0] < counts[1] == 12 * 16
