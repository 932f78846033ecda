"""What is read from a store is what was written into it, or an error that names the file."""

import re
import shutil
from contextlib import suppress

import numpy as np
import polars as pl
import pytest
import torch

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.store.files import DamagedFileError
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images, short


@pytest.fixture(scope="module")
def stored(deployed, tmp_path_factory):
    """A store of two shards with kept images."""
    folder = tmp_path_factory.mktemp("damage") / "s"
    evaluate(deployed, images(8), short, folder, threat=Linf(EPS), batch_size=4, shard_size=4, keep_images=True)
    return folder


@pytest.fixture
def store(stored, tmp_path):
    return Store(shutil.copytree(stored, tmp_path / "s"))


def attack_of(store):
    return store.attacks[0]


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("which", ["clean", "attack", "images"])
def test_no_flipped_bit_of_a_file_changes_a_number_silently(store, which):
    attack = None if which == "clean" else attack_of(store)
    path = store.images_path(attack, 0) if which == "images" else store.path(attack, 0)

    def read():
        fresh = Store(store.folder)
        if which == "images":
            return fresh.images(attack, 0)[1].numpy().tobytes()
        return fresh.shard_rows(attack, 0).collect().to_dict(as_series=False)

    whole, content, named = read(), path.read_bytes(), re.escape(f"{path} is damaged")
    for bit in np.random.default_rng(0).choice(8 * len(content), 150, replace=False):
        path.write_bytes(flipped(content, int(bit)))
        with suppress(DamagedFileError):
            assert read() == whole, bit  # a flip in the seal's own name leaves an unsealed whole file
            continue
        with pytest.raises(DamagedFileError, match=named):
            read()
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["parquet", "safetensors"])
def test_a_file_in_the_place_of_another_is_refused(store, kind):
    attack = attack_of(store)
    place = store.path if kind == "parquet" else store.images_path
    read = store.shard_rows if kind == "parquet" else store.images
    whole = place(attack, 0).read_bytes()
    for there in (place(attack, 1), place(None, 0)):
        place(attack, 0).write_bytes(there.read_bytes())
        with pytest.raises(DamagedFileError, match=rf"{attack}.shard-0000.{kind} is damaged"):
            read(attack, 0)
    place(attack, 0).write_bytes(whole)
    read(attack, 0)


def unsealed(path, change=lambda rows: rows):
    """The file as an earlier version, or another program, wrote it."""
    change(pl.read_parquet(path)).write_parquet(path)


def test_files_without_a_seal_are_read_and_their_images_and_labels_compared(store):
    attack = attack_of(store)
    path = store.path(attack, 1)
    expected = store.rows(attack).collect()
    unsealed(path)
    assert Store(store.folder).rows(attack).collect().equals(expected)
    changes = {
        "it has 3 images": lambda rows: rows.filter(pl.col("image") != 5),
        "it has 4 images": lambda rows: rows.with_columns(image=pl.col("image") - 4),
        "labels or clean predictions": lambda rows: rows.with_columns(label=9 - pl.col("label")),
        "its columns are": lambda rows: rows.drop("queries"),
    }
    whole = path.read_bytes()
    for words, change in changes.items():
        path.write_bytes(whole)
        unsealed(path, lambda rows, change=change: change(rows).cast({"image": pl.Int32, "label": pl.Int32}))
        with pytest.raises(DamagedFileError, match=words):
            Store(store.folder).rows(attack).collect()


def test_a_missing_file_of_clean_predictions_is_named(store):
    store.path(None, 1).unlink()
    with pytest.raises(ValueError, match=r"clean.shard-0001.parquet is missing: copy it again, or run the evaluation"):
        store.rows().collect()


def test_images_are_those_of_the_shard(store):
    attack = attack_of(store)
    index, pixels = store.images(attack, 0)
    store.images_path(attack, 0).unlink()
    store.write(attack, 0, store.shard_rows(attack, 0).collect(), (index + 4, pixels))
    with pytest.raises(DamagedFileError, match="it has other images than 0 to 3"):
        store.images(attack, 0)


def test_a_folder_of_any_name_can_hold_a_store(store, tmp_path):
    for name in ("back\\slash", "eps[8]", "a=b", "*", "?", "~", "{x}", "sp ace\n", "100%25"):
        copied = Store(shutil.copytree(store.folder, tmp_path / "names" / name))
        assert copied.complete(attack_of(copied))
        assert copied.rows().collect().equals(store.rows().collect()), name
        assert torch.equal(copied.images(attack_of(copied), 1)[1], store.images(attack_of(copied), 1)[1])
        assert copied.times().height, name


def test_a_partial_item_that_is_damaged_is_computed_again(tmp_path):
    from robustdeq.evaluation.run.resume import PartialItem
    from tests.evaluation.run.test_partial_items import rows

    item = PartialItem(Store(tmp_path), "pgd", 0, keep_images=False)
    item.write(rows(0, 1), torch.arange(2), torch.empty(0))
    (path,) = (tmp_path / "partial").rglob("*.parquet")
    content = path.read_bytes()
    assert item.count() == 2
    path.write_bytes(flipped(content, 8 * 40))
    assert item.read(torch.arange(4), 2) is None
    assert item.count() == 0
