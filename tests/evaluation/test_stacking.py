"""Attacks of the grid that share batches: the same results, and the same bytes whatever was done before."""

from dataclasses import replace

import pytest

from robustdeq.evaluation import evaluate, suites
from robustdeq.evaluation.stacking import bundles
from robustdeq.evaluation.subject import Subject
from robustdeq.evaluation.suites import Setting
from robustdeq.threat import Linf
from tests.evaluation.conftest import UNROLLINGS
from tests.evaluation.predictors import EPS, small_deq


@pytest.fixture
def stacked(deployed, images, tmp_path):
    """The grid in batches of 40: four attacks on a shard of ten images."""

    def run(**options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(suites, "UNROLLINGS", UNROLLINGS)
            options = {"threat": Linf(EPS), "batch_size": 40, "shard_size": 10, "keep_images": True} | options
            return evaluate(deployed, images, "grid", tmp_path / "store", **options)

    return run


def test_sharing_batches_changes_nothing_but_rounding(stacked, grid_verdict):
    seen = []
    keys = ["attack", "image", "predictor", "state"]
    one, other = grid_verdict.store, stacked(report=seen.append).store
    assert {now.doing for now in seen} == {"looking", "clean", *(f"pgd-i{i}-K1-l0.5 and 3 more" for i in (1, 2, 3))}
    a, b = (store.rows().collect().sort(keys) for store in (one, other))
    exact = [*keys, "label", "deployed", "clean_prediction", "prediction", "success", "queries"]
    assert a.select(exact).equals(b.select(exact))
    for column in ("margin", "entropy", "loss"):
        assert a[column].to_list() == pytest.approx(b[column].to_list(), rel=1e-5, abs=1e-6)
    for attack in one.attacks:
        (index, pixels), (same_index, same) = one.images(attack, 1), other.images(attack, 1)
        assert index.tolist() == same_index.tolist()
        assert (pixels - same).abs().max() < 1e-9


def test_going_on_inside_a_bundle_gives_the_bytes_of_an_undisturbed_run(stacked):
    class Stop(Exception):
        pass

    store = stacked().store
    files = {
        path: path.read_bytes() for folder in ("attacks", "images") for path in (store.folder / folder).rglob("shard-*")
    }
    assert len(files) == 2 * 2 * 12
    lost = [path for k, path in enumerate(sorted(files)) if k % 3 == 0]
    for path in lost:
        path.unlink()

    def report(now):
        if now.done > 1 and not lost[0].exists():
            raise Stop

    with pytest.raises(Stop):
        stacked(report=report)
    stacked()
    assert {path: path.read_bytes() for path in files} == files


def test_bundles_depend_on_the_configuration_and_hold_only_what_can_share(deployed):
    grid = suites.grid(Setting(Subject(deployed), Linf(EPS)))

    def sizes(specs, predictor=deployed, **options):
        options = {"shard_size": 50, "batch_size": 900} | options
        return [len(bundle) for bundle in bundles(specs, Subject(predictor), **options)]

    assert sizes(grid) == [18, 18, 18]
    assert sizes(grid, batch_size=449) == 3 * [8, 8, 2]
    assert sizes(grid, shard_size=500) == 54 * [1]
    for change in ({"every_image": False}, {"options": {**grid[0].options, "restarts": 2}}, {"attack": "apgd"}):
        assert sizes([replace(spec, **change) for spec in grid]) == 54 * [1]
    assert sizes([grid[0], replace(grid[1], eps=0.01), replace(grid[2], limit=3), grid[3]]) == [2, 1, 1]
    coupled = small_deq()
    coupled.solver = replace(coupled.solver, batch_coupled=True)
    assert sizes(grid, coupled) == 54 * [1]
