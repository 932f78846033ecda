"""Finished batches of a work item that is not done yet."""

import polars as pl
import pytest
import torch

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.run import resume
from robustdeq.evaluation.run.batch import Batches
from robustdeq.evaluation.run.progress import Tracker
from robustdeq.evaluation.run.resume import PartialItem
from robustdeq.evaluation.store.files import Origin, as_safetensors
from robustdeq.evaluation.store.schema import PARTIAL_SCHEMA
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images, short


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture
def run(deployed, tmp_path, monkeypatch):
    """Evaluate four batches of an item into a folder; the process ends in the batch of that number, if any.

    Returns the folder's store and the batches that were computed.
    """

    def evaluated(name, dies_in=None, **options):
        computed = []
        whole = Batches.attacked

        def attacked(self, specs, pairs):
            number = int(pairs[0, 1]) // 2
            if number == dies_in:
                raise Killed
            computed.append(number)
            return whole(self, specs, pairs)

        with monkeypatch.context() as patch:
            patch.setattr(Batches, "attacked", attacked)
            settings = {"threat": Linf(EPS), "batch_size": 2, "shard_size": 8} | options
            try:
                evaluate(deployed, images(8), short, tmp_path / name, **settings)
            except Killed:
                assert dies_in is not None
        return Store(tmp_path / name), computed

    return evaluated


@pytest.fixture
def at_once(monkeypatch):
    """Keep partial items from the first second on."""
    monkeypatch.setattr(resume, "WORTH", 0.0)


def files(store):
    """Every file of results, with its content."""
    kinds = (".parquet", ".safetensors")
    return {p.relative_to(store.folder): p.read_bytes() for p in store.folder.rglob("*") if p.suffix in kinds}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("options", [{}, {"keep_images": True}, {"union": True}])
def test_a_killed_item_resumes_with_its_next_batch_and_ends_with_the_same_bytes(run, options):
    expected, batches = run("whole", **options)
    assert len(batches) > 2
    run("store", dies_in=batches[2], **options)
    store, computed = run("store", **options)
    assert computed == batches[2:]
    assert files(store) == files(expected)
    assert not (store.folder / "partial").exists()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("dies_in", "expected"), [(2, [2]), (3, [0, 2])])
def test_a_partial_item_is_resumed_in_batches_of_another_size_where_they_fit(run, dies_in, expected):
    whole, _ = run("whole")
    run("store", dies_in=dies_in)
    store, computed = run("store", batch_size=4)
    assert computed == expected  # batches are named by their first image, halved
    assert not (store.folder / "partial").exists()
    (attack,) = store.attacks
    keys = ["image", "predictor", "state"]
    rows, same = (s.rows(attack).select(*keys, "prediction").sort(keys).collect() for s in (store, whole))
    assert rows.equals(same)
    manifest = store.manifest
    assert (manifest.batch_size, [run.batch_size for run in manifest.runs]) == (2, [2, 4])


@pytest.mark.usefixtures("at_once")
def test_nothing_is_left_of_a_partial_item_that_is_finished_in_one_batch(run):
    run("store", dies_in=2)
    store, _ = run("store", batch_size=8)
    assert not (store.folder / "partial").exists()


@pytest.mark.usefixtures("at_once")
def test_a_partial_item_that_is_done_is_removed_at_the_next_start(run):
    store, _ = run("store")
    (attack,) = store.attacks
    left = store.folder / "partial" / attack / "shard-0000.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    run("store")
    assert not (store.folder / "partial").exists()


@pytest.mark.usefixtures("at_once")
def test_kept_batches_are_neither_forecast_nor_logged_again(run, monkeypatch):
    run("store", dies_in=2)
    efforts = []
    begin = Tracker.begin
    monkeypatch.setattr(Tracker, "begin", lambda self, effort: efforts.append(effort.images) or begin(self, effort))
    store, _ = run("store")
    assert efforts == [4.0]
    assert store.times().filter(attack=store.attacks[0])["images"].to_list() == [4]


def test_an_item_that_another_process_has_finished_meanwhile_is_left(run, monkeypatch):
    whole, _ = run("whole")
    (attack,) = whole.attacks
    inner = Batches.attacked

    def finished_meanwhile(self, specs, pairs):
        path = Store(self.folder).path(attack, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole.path(attack, 0).read_bytes())
        return inner(self, specs, pairs)

    monkeypatch.setattr(Batches, "attacked", finished_meanwhile)
    store, computed = run("store")
    assert computed == [0]
    assert files(store) == files(whole)


def test_work_of_a_few_seconds_is_not_kept(run):
    store, _ = run("store", dies_in=2)
    assert not (store.folder / "partial").exists()
    assert run("store")[1] == [0, 1, 2, 3]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("kind", "keep_images"), [("parquet", False), ("safetensors", True)])
def test_a_partial_item_that_cannot_be_read_is_computed_again(run, kind, keep_images):
    store, _ = run("store", dies_in=2, keep_images=keep_images)
    (path,) = store.folder.glob(f"partial/*/shard-0000.{kind}")
    path.write_bytes(path.read_bytes()[:40])
    assert run("store", keep_images=keep_images)[1] == [0, 1, 2, 3]


def rows(*numbers):
    return pl.DataFrame({"image": numbers}).select(
        pl.col("image") if name == "image" else pl.lit(None).alias(name) for name in PARTIAL_SCHEMA
    )


def test_partial_results_of_other_images_or_without_their_images_are_not_read(tmp_path):
    place = PartialItem(Store(tmp_path), "pgd", 0, keep_images=False)
    place.write(rows(3, 5), torch.tensor([3, 5]), torch.zeros(2, 3, 2, 2))
    assert place.count() == 2
    assert place.read(torch.tensor([3, 5, 7]), 2) is not None
    assert place.read(torch.tensor([3, 6, 7]), 2) is None
    assert place.read(torch.tensor([5, 3, 7]), 2) is None
    assert place.read(torch.tensor([3]), 2) is None
    assert place.read(torch.tensor([3, 5, 7, 9]), 4) is None  # half a batch
    assert PartialItem(Store(tmp_path), "pgd", 1, keep_images=False).read(torch.tensor([3, 5]), 2) is None
    assert PartialItem(Store(tmp_path), "pgd", 0, keep_images=True).read(torch.tensor([3, 5]), 2) is None


def test_removing_one_partial_item_leaves_the_others(tmp_path):
    one, other = (PartialItem(Store(tmp_path), "pgd", shard, keep_images=False) for shard in (0, 1))
    for place in (one, other):
        place.write(rows(0), torch.tensor([0]), torch.empty(0))
    one.remove()
    assert other.read(torch.tensor([0]), 1) is not None
    other.remove()
    assert not (tmp_path / "partial").exists()


def test_a_kill_between_the_two_files_of_a_partial_item_loses_no_batch(tmp_path):
    item = PartialItem(Store(tmp_path), "pgd", 0, keep_images=True)
    rows = _rows_of(range(4))
    item.write(rows, torch.arange(4), torch.zeros(4, 1, 2, 2))
    longer = as_safetensors((torch.arange(6), torch.ones(6, 1, 2, 2)), Origin("pgd", 0))  # images come first, then rows
    (tmp_path / "partial" / "pgd" / "shard-0000.safetensors").write_bytes(longer)
    found = item.read(torch.arange(8), 2)
    assert found is not None
    assert (found[1].shape[0], found[2]) == (4, 4)


def test_a_slower_process_does_not_replace_a_longer_partial_item(tmp_path):
    item = PartialItem(Store(tmp_path), "pgd", 0, keep_images=False)
    item.write(_rows_of(range(4)), torch.arange(4), torch.empty(0))
    item.write(_rows_of(range(2)), torch.arange(2), torch.empty(0))
    assert item.count() == 4


def _rows_of(images):
    empty = {name: pl.lit(None, dtype=kind).alias(name) for name, kind in PARTIAL_SCHEMA.items() if name != "image"}
    return pl.DataFrame({"image": list(images)}).with_columns(*empty.values())
