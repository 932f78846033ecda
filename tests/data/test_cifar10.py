"""CIFAR-10 from folder and archive, whole, damaged and absent."""

import io
import pickle
import tarfile

import numpy as np
import pytest
import torch

from robustdeq.data import DataError, DataNotFoundError, load_cifar10
from robustdeq.data.cifar10 import CLASSES
from robustdeq.data.pickles import read_pickle
from tests.data.official import (
    ARCHIVE,
    FOLDER,
    NAMES,
    REAL,
    archive_bytes,
    fake_batches,
    fake_files,
    needs_cifar10,
    pickled,
    pickled_by_python2,
    write_folder,
)


def assert_fake(splits, held_out):
    """Exactly the fake images, with the last training images held out."""
    train, validation, test = splits
    batches = fake_batches()
    pixels = np.concatenate([batches[name][0] for name in NAMES]).reshape(-1, 3, 32, 32)
    labels = [label for name in NAMES for label in batches[name][1]]
    assert [len(p) for p in splits] == [20 - held_out, held_out, 4]
    assert np.array_equal(torch.cat([p.pixels for p in (train, validation, test)]).numpy(), pixels)
    assert torch.cat([p.labels for p in (train, validation, test)]).tolist() == labels
    assert train.classes == CLASSES


@pytest.mark.parametrize("held_out", [0, 3, 19])
def test_the_folder_is_read_and_the_last_training_images_held_out(tmp_path, held_out):
    write_folder(tmp_path / FOLDER, fake_files())
    assert_fake(load_cifar10(tmp_path, held_out=held_out), held_out)


def test_the_folder_itself_may_be_the_root(tmp_path):
    assert_fake(load_cifar10(write_folder(tmp_path / "mine", fake_files()), held_out=2), 2)


@pytest.mark.parametrize("as_root", [True, False])
def test_the_archive_is_read_in_place_and_nothing_unpacked(tmp_path, as_root):
    (tmp_path / ARCHIVE).write_bytes(archive_bytes(fake_files()))
    assert_fake(load_cifar10(tmp_path / ARCHIVE if as_root else tmp_path, held_out=2), 2)
    assert [p.name for p in tmp_path.iterdir()] == [ARCHIVE]


def test_files_in_any_order_and_with_a_leading_dot_are_found_in_an_archive(tmp_path):
    files = dict(reversed(fake_files().items()))
    (tmp_path / "other.tar.gz").write_bytes(archive_bytes(files, prefix=f"./{FOLDER}/"))
    assert_fake(load_cifar10(tmp_path / "other.tar.gz", held_out=2), 2)


def test_files_written_by_python2_are_read(tmp_path):
    write_folder(tmp_path / FOLDER, {name: pickled_by_python2(*batch) for name, batch in fake_batches().items()})
    assert_fake(load_cifar10(tmp_path, held_out=2), 2)


def test_without_root_the_environment_or_data_says_where(tmp_path, monkeypatch):
    write_folder(tmp_path / "data" / FOLDER, fake_files())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROBUSTDEQ_DATA", raising=False)
    assert_fake(load_cifar10(held_out=2), 2)
    monkeypatch.setenv("ROBUSTDEQ_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataNotFoundError, match="elsewhere"):
        load_cifar10()


def test_missing_data_are_an_error_that_says_where_it_looked_and_two_ways_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_cifar10(tmp_path)
    assert isinstance(caught.value, DataNotFoundError)
    message = str(caught.value)
    for part in (
        str(tmp_path / FOLDER),
        str(tmp_path / ARCHIVE),
        f"download_cifar10({str(tmp_path)!r})",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "ROBUSTDEQ_DATA",
    ):
        assert part in message


def test_an_incomplete_folder_is_named_with_what_it_lacks(tmp_path):
    files = fake_files()
    del files["data_batch_3"]
    write_folder(tmp_path / FOLDER, files)
    with pytest.raises(DataNotFoundError, match=f"{FOLDER} is incomplete: it lacks data_batch_3"):
        load_cifar10(tmp_path)


def test_an_archive_beside_an_incomplete_folder_is_used(tmp_path):
    write_folder(tmp_path / FOLDER, {"data_batch_1": b""})
    (tmp_path / ARCHIVE).write_bytes(archive_bytes(fake_files()))
    assert_fake(load_cifar10(tmp_path, held_out=2), 2)


class Mischief:
    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        import os

        return os.mkdir, (self.target,)


@pytest.mark.parametrize("archived", [True, False])
def test_a_malicious_file_does_not_run_and_is_named(tmp_path, archived):
    target = tmp_path / "executed"
    bad = pickle.dumps({"data": Mischief(target), "labels": []}, protocol=2)
    files = {**fake_files(), "data_batch_4": bad}
    if archived:
        (tmp_path / ARCHIVE).write_bytes(archive_bytes(files))
    else:
        write_folder(tmp_path / FOLDER, files)
    with pytest.raises(DataError, match=r"data_batch_4 cannot be read.*mkdir, which no CIFAR-10 file needs"):
        load_cifar10(tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("cut", [0, 10, 1000, -1])
def test_a_truncated_file_is_named(tmp_path, cut):
    files = fake_files()
    files["test_batch"] = files["test_batch"][:cut]
    write_folder(tmp_path / FOLDER, files)
    with pytest.raises(DataError, match=r"test_batch cannot be read as CIFAR-10.*Get it again from https"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
def test_a_truncated_archive_is_named(tmp_path, share):
    whole = archive_bytes(fake_files(rows=40))
    (tmp_path / ARCHIVE).write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match=ARCHIVE):
        load_cifar10(tmp_path)


def test_a_damaged_archive_is_named(tmp_path):
    whole = bytearray(archive_bytes(fake_files(rows=40)))
    middle = len(whole) // 2
    whole[middle : middle + 50] = bytes(50)
    (tmp_path / ARCHIVE).write_bytes(whole)
    with pytest.raises(DataError, match=ARCHIVE):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("prefix", ["", "/", "../", f"../{FOLDER}/", f"/{FOLDER}/", f"{FOLDER}/../{FOLDER}/"])
def test_members_with_other_paths_are_not_read(tmp_path, prefix):
    (tmp_path / ARCHIVE).write_bytes(archive_bytes(fake_files(), prefix=prefix))
    with pytest.raises(DataError, match=f"lacks {FOLDER}/data_batch_1.*it is truncated, or not {ARCHIVE}"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_in_an_archive_are_not_followed(tmp_path, kind):
    outside = write_folder(tmp_path / "outside", fake_files())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in NAMES:
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.type, member.linkname = kind, str(outside / name)
            archive.addfile(member)
    (tmp_path / ARCHIVE).write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="lacks"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickled(np.zeros((4, 3071), np.uint8), [0] * 4), "no rows of 3x32x32 pixels"),
        (pickled(np.zeros(3072, np.uint8), [0]), "no rows of 3x32x32 pixels"),
        (pickled([1, 2], [0, 0]), "no rows of 3x32x32 pixels"),
        (pickled(np.zeros((4, 3072), np.uint8), [0] * 3), "a label 0..9 for each of its 4 images"),
        (pickled(np.zeros((2, 3072), np.uint8), [0, 10]), "a label 0..9 for each"),
        (pickled(np.zeros((2, 3072), np.uint8), [0, -1]), "a label 0..9 for each"),
        (pickled(np.zeros((2, 3072), np.uint8), ["0", "1"]), "a label 0..9 for each"),
        (pickled(np.zeros((2, 3072), np.uint8), None), "a label 0..9 for each"),
        (pickle.dumps({}, protocol=2), "no rows"),
    ],
)
def test_files_that_are_not_cifar10_are_named(tmp_path, content, message):
    write_folder(tmp_path / FOLDER, {**fake_files(), "data_batch_2": content})
    with pytest.raises(DataError, match=f"data_batch_2.*{message}"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("held_out", [-1, 20, 1000])
def test_more_than_the_training_set_cannot_be_held_out(tmp_path, held_out):
    write_folder(tmp_path / FOLDER, fake_files())
    with pytest.raises(ValueError, match=rf"held_out must lie in 0\.\.19.*got {held_out}"):
        load_cifar10(tmp_path, held_out=held_out)


@needs_cifar10
def test_the_real_data_have_the_official_sizes_classes_and_means_and_no_test_image_is_trained_on():
    train, validation, test = load_cifar10(REAL)
    assert [len(p) for p in (train, validation, test)] == [49_000, 1_000, 10_000]
    assert train.pixels.shape[1:] == (3, 32, 32)
    together = torch.bincount(torch.cat([train.labels, validation.labels]))
    assert together.tolist() == [5000] * 10
    assert torch.bincount(test.labels).tolist() == [1000] * 10
    # the statistics everybody quotes, of the whole official training set
    pixels = torch.cat([train.pixels, validation.pixels])
    mean = [pixels[:, c].sum().item() / pixels[:, c].numel() / 255 for c in range(3)]
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    shown = {image.tobytes() for image in pixels.numpy()}
    assert not any(image.tobytes() in shown for image in test.pixels.numpy())


@needs_cifar10
def test_the_real_class_names_are_ours():
    meta = read_pickle((REAL / FOLDER / "batches.meta").read_bytes())
    assert tuple(name.decode() for name in meta["label_names"]) == CLASSES
