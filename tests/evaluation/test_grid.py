"""The grid, end to end on a small DEQ."""

import polars as pl
import pytest
import torch

from robustdeq.attacks import PGD
from robustdeq.attacks.oracles import UnrolledState
from robustdeq.evaluation.analysis import metrics
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS


@pytest.fixture
def store(grid_verdict):
    return grid_verdict.store


def test_union_is_at_most_the_paper_minimum_which_is_the_lowest_attack(grid_verdict):
    assert grid_verdict.complete
    assert len(grid_verdict.attacks) == 12
    assert grid_verdict.minimum.value == min(share.value for share in grid_verdict.attacks.values())
    assert grid_verdict.union.value <= grid_verdict.minimum.value < grid_verdict.clean.value
    assert grid_verdict.bounds.low == grid_verdict.bounds.high == grid_verdict.union.value
    assert "paper-minimum of 12 attacks" in grid_verdict.table()


@pytest.mark.parametrize("name", ["pgd-i1-K1-l1", "pgd-i3-K5-l0.5"])
def test_an_attack_of_the_grid_equals_pgd_run_by_hand(store, deployed, images, name):
    x, y = images
    spec = store.manifest.attacks[name].spec
    options = spec.oracle_options
    oracle = UnrolledState(deployed, state=options["state"], steps=options["steps"], damping=options["damping"])
    result = PGD(Linf(EPS), steps=10, step_size=EPS / 4, seed=spec.seed(0))(oracle, x, y, index=range(len(x)))
    rows = store.rows(name).filter(pl.col("deployed")).sort("image").collect()
    assert rows["prediction"].to_list() == result.logits.argmax(1).tolist()
    assert rows["success"].to_list() == result.success.tolist()
    assert rows["queries"].to_list() == [11] * len(x)
    for shard, part in enumerate((slice(0, 10), slice(10, 16))):
        index, pixels = store.images(name, shard)
        assert index.tolist() == list(range(16))[part]
        torch.testing.assert_close(pixels, result.images[part], rtol=0, atol=1e-12)


def test_scores_of_every_state_equal_the_trajectory_and_the_model(store, deployed, model, images):
    x, y = images
    trajectory = deployed.trajectory(x)
    rows = store.clean().collect()
    assert rows["state"].unique(maintain_order=True).to_list() == ["1", "2", "3", "final"]
    assert rows.filter(pl.col("deployed"))["state"].unique().to_list() == ["3"]
    for t in (1, 2, 3):
        state = rows.filter(pl.col("state") == str(t))
        assert state["prediction"].to_list() == trajectory.logits[t - 1].argmax(1).tolist()
        assert state["entropy"].to_list() == pytest.approx(trajectory.entropy[t - 1].tolist(), abs=1e-6)
        assert state["residual"].to_list() == pytest.approx(trajectory.residual[t - 1].tolist(), rel=1e-6)
    final = rows.filter(pl.col("state") == "final")
    with torch.no_grad():
        logits = model(x)
    assert final["prediction"].to_list() == logits.argmax(1).tolist()
    assert final["loss"].to_list() == pytest.approx(
        torch.nn.functional.cross_entropy(logits, y, reduction="none").tolist(), rel=1e-6
    )
    own = logits.gather(1, y[:, None])[:, 0]
    others = logits.scatter(1, y[:, None], -1e9).amax(1)
    assert final["margin"].to_list() == pytest.approx((own - others).tolist(), rel=1e-5, abs=1e-6)


def test_clean_predictions_stand_beside_the_attacked_ones(store):
    clean = store.clean().select("image", "predictor", "state", "prediction").collect()
    joined = store.rows("pgd-i2-K1-l1").collect().join(clean, on=["image", "predictor", "state"], suffix="_clean")
    assert len(joined) == 16 * 4
    assert (joined["clean_prediction"] == joined["prediction_clean"]).all()
    assert (joined["clean_prediction"] != joined["prediction"]).any()


def test_the_strongest_of_each_state_is_the_minimum_of_its_row(store):
    table = metrics.by_oracle(store)
    best = metrics.strongest_by_state(store)
    assert best.select("damping", "i").rows() == [(d, i) for d in (0.5, 1.0) for i in (1, 2, 3)]
    for row in best.iter_rows(named=True):
        own = table.filter((pl.col("i") == row["i"]) & (pl.col("damping") == row["damping"]))
        assert len(own) == 2
        assert row["accuracy"] == own["accuracy"].min()
    strongest = metrics.strongest(store)
    assert strongest.accuracy.value == best["accuracy"].min()
    assert strongest.attack == f"pgd-i{strongest.state}-K{strongest.steps}-l{strongest.damping:g}"
