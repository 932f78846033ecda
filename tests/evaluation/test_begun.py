"""Batches of an item under way."""

import polars as pl
import pytest
import torch

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.run import resume as begun
from robustdeq.evaluation.run.forecast import Forecast
from robustdeq.evaluation.run.resume import BATCH_SCHEMA, Begun
from robustdeq.evaluation.run.runner import Runner
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture
def run(deployed, tmp_path, monkeypatch):
    """Evaluate four batches of an item into a folder; the process ends in the batch of that number, if any.

    Returns the folder's store and the batches that were computed.
    """

    def evaluated(name, dies_in=None, **options):
        computed = []
        whole = Runner._attacked_rows

        def attacked(self, specs, pairs):
            number = int(pairs[0, 1]) // 2
            if number == dies_in:
                raise Killed
            computed.append(number)
            return whole(self, specs, pairs)

        with monkeypatch.context() as patch:
            patch.setattr(Runner, "_attacked_rows", attacked)
            settings = {"threat": Linf(EPS), "batch_size": 2, "shard_size": 8} | options
            try:
                evaluate(deployed, images(8), "quick", tmp_path / name, **settings)
            except Killed:
                assert dies_in is not None
        return Store(tmp_path / name), computed

    return evaluated


def files(store):
    """Every file of results, with what it holds."""
    kinds = (".parquet", ".safetensors")
    return {p.relative_to(store.folder): p.read_bytes() for p in store.folder.rglob("*") if p.suffix in kinds}


@pytest.mark.parametrize("options", [{}, {"keep_images": True}, {"union": True}])
def test_a_killed_item_goes_on_with_its_next_batch_and_ends_the_same(run, monkeypatch, options):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    expected, batches = run("whole", **options)
    assert len(batches) > 2
    run("store", dies_in=batches[2], **options)
    store, computed = run("store", **options)
    assert computed == batches[2:]
    assert files(store) == files(expected)
    assert not (store.folder / "begun").exists()


def test_a_store_goes_on_in_batches_of_another_size(run, monkeypatch):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    expected, _ = run("whole")
    run("store", dies_in=2)
    store, computed = run("store", batch_size=4)
    assert computed == [0, 2]  # batches are known by their first image: all anew
    assert not (store.folder / "begun").exists()
    (attack,) = store.attacks
    keys = ["image", "predictor", "state"]
    rows, same = (s.rows(attack).select(*keys, "prediction").sort(keys).collect() for s in (store, expected))
    assert rows.equals(same)
    manifest = store.manifest
    assert (manifest["batch_size"], [run["batch_size"] for run in manifest["runs"]]) == (2, [2, 4])


def test_nothing_is_left_of_small_batches_where_one_batch_holds_all(run, monkeypatch):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    run("store", dies_in=2)
    store, _ = run("store", batch_size=8)
    assert not (store.folder / "begun").exists()


def test_what_a_kill_left_of_an_item_that_is_done_is_removed(run, monkeypatch):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    store, _ = run("store")
    (attack,) = store.attacks
    left = store.folder / "begun" / attack / "shard-0000" / "batch-0000.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    run("store")
    assert not (store.folder / "begun").exists()


def test_kept_batches_are_neither_forecast_nor_logged_again(run, monkeypatch):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    run("store", dies_in=2)
    efforts = []
    monkeypatch.setattr(Forecast, "learn", lambda self, effort, *seconds: efforts.append(effort.images))
    store, _ = run("store")
    assert efforts == [4.0]
    assert store.times().filter(attack=store.attacks[0])["images"].to_list() == [4]


def test_an_item_that_another_process_finished_is_left(run, tmp_path, monkeypatch):
    whole, _ = run("whole")
    (attack,) = whole.attacks
    read = Begun.read

    def finished_meanwhile(self, batch, index):
        if batch == 1:
            self.store.attack_path(attack, 0).parent.mkdir(parents=True, exist_ok=True)
            self.store.attack_path(attack, 0).write_bytes(whole.attack_path(attack, 0).read_bytes())
        return read(self, batch, index)

    monkeypatch.setattr(Begun, "read", finished_meanwhile)
    store, computed = run("store")
    assert computed == [0, 1]
    assert files(store) == files(whole)


def test_what_is_computed_soon_is_not_kept(run):
    store, _ = run("store", dies_in=2)
    assert not (store.folder / "begun").exists()
    assert run("store")[1] == [0, 1, 2, 3]


@pytest.mark.parametrize(("kind", "keep_images"), [("parquet", False), ("safetensors", True)])
def test_a_batch_that_cannot_be_read_is_computed_again(run, monkeypatch, kind, keep_images):
    monkeypatch.setattr(begun, "WORTH", 0.0)
    store, _ = run("store", dies_in=2, keep_images=keep_images)
    (path,) = store.folder.glob(f"begun/*/shard-0000/by-2/batch-0001.{kind}")
    path.write_bytes(path.read_bytes()[:40])
    assert run("store", keep_images=keep_images)[1] == [1, 2, 3]


def test_a_batch_of_other_images_or_without_its_images_is_none(tmp_path):
    rows = pl.DataFrame({"image": [3, 5]}).select(
        pl.col("image") if name == "image" else pl.lit(None).alias(name) for name in BATCH_SCHEMA
    )
    place = Begun(Store(tmp_path), "pgd", 0, 2, keep_images=False)
    place.write(0, rows, torch.tensor([3, 5]), torch.zeros(2, 3, 2, 2))
    assert place.read(0, torch.tensor([3, 5])) is not None
    assert place.read(0, torch.tensor([3, 6])) is None
    assert place.read(0, torch.tensor([5, 3])) is None
    assert place.read(1, torch.tensor([3, 5])) is None
    assert Begun(Store(tmp_path), "pgd", 0, 2, keep_images=True).read(0, torch.tensor([3, 5])) is None


def test_items_beside_it_stay_when_one_is_done(tmp_path):
    rows = pl.DataFrame({"image": [0]}).select(
        pl.col("image") if name == "image" else pl.lit(None).alias(name) for name in BATCH_SCHEMA
    )
    one, other = (Begun(Store(tmp_path), "pgd", shard, 2, keep_images=False) for shard in (0, 1))
    for place in (one, other):
        place.write(0, rows, torch.tensor([0]), torch.empty(0))
    one.drop()
    assert other.read(0, torch.tensor([0])) is not None
    other.drop()
    assert not (tmp_path / "begun").exists()
