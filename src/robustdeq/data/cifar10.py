"""CIFAR-10 from the official files, https://www.cs.toronto.edu/~kriz/cifar.html."""

from __future__ import annotations

import os
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from robustdeq.data.download import Progress, download
from robustdeq.data.errors import DataError, DataNotFoundError
from robustdeq.data.images import Images, Splits
from robustdeq.data.pickles import read_pickle
from robustdeq.data.split import check_held_out

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3f95e74349a"
ARCHIVE, FOLDER = "cifar-10-python.tar.gz", "cifar-10-batches-py"
TRAIN_FILES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_FILE = "test_batch"
FILES = (*TRAIN_FILES, TEST_FILE)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MAX_BYTES = 100_000_000
"""Size limit of one file in the archive, three times the largest official one."""
ROOT_VARIABLE = "ROBUSTDEQ_DATA"

Batch = tuple[np.ndarray, np.ndarray]


def load_cifar10(root: str | Path | None = None, *, held_out: int = 1000) -> Splits:
    """49,000 training, 1,000 validation and 10,000 test images: the official sets, the last training images held out.

    Args:
        root: Folder that holds cifar-10-batches-py/ or cifar-10-python.tar.gz, or one of these two itself; by default
            the environment variable ROBUSTDEQ_DATA, or ./data. An archive is read without unpacking it.
        held_out: Number of validation images, which leave the training set.
    """
    source = _find(Path(os.environ.get(ROOT_VARIABLE, "data") if root is None else root))
    in_folder = ((name, (source / name).read_bytes()) for name in FILES)
    files = in_folder if source.is_dir() else _read_archive(source)
    batches = {name: _read_batch(file, source / name) for name, file in files}
    train = _images([batches[name] for name in TRAIN_FILES])
    check_held_out(held_out, len(train))
    split = len(train) - held_out
    return train.subset(slice(0, split)), train.subset(slice(split, None)), _images([batches[TEST_FILE]])


def download_cifar10(root: str | Path, *, url: str = URL, md5: str = MD5, progress: Progress | None = None) -> Path:
    """Downloads the official archive (170 MB) into the folder `root`, from where `load_cifar10(root)` reads it.

    `progress` is called with the bytes received and the total; by default there is a bar on standard error.
    """
    return download(url, Path(root) / ARCHIVE, md5=md5, progress=progress)


def _find(root: Path) -> Path:
    """The folder or archive to read: the first one that is complete."""
    looked, incomplete = [root / FOLDER, root, root / ARCHIVE], ""
    if root.is_file():
        return root
    for folder in looked[:2]:
        missing = [name for name in FILES if not (folder / name).is_file()]
        if not missing:
            return folder
        if len(missing) < len(FILES):
            incomplete += f" {folder} is incomplete: it lacks {', '.join(missing)}."
    if (root / ARCHIVE).is_file():
        return root / ARCHIVE
    raise DataNotFoundError(
        f"no CIFAR-10 at {root}: looked for {looked[0]}{os.sep}, for {FILES[0]} in {looked[1]}, and for {looked[2]}."
        f"{incomplete} Two ways to get it: (1) download it, "
        f'python -c "from robustdeq.data import download_cifar10; download_cifar10({str(root)!r})"; '
        f"(2) fetch {URL} by other means and put the archive, or the folder it unpacks to, into {root}. "
        f"Data that lie elsewhere are found with root=... or the environment variable {ROOT_VARIABLE}"
    )


def _read_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    # Nothing is written to disk, so a member's path can do no harm; links and devices are not read.
    wanted = {f"{FOLDER}/{name}": name for name in FILES}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = wanted.get(member.name.removeprefix("./"))
                file = archive.extractfile(member) if name and member.isfile() and member.size <= MAX_BYTES else None
                if name and file:
                    del wanted[f"{FOLDER}/{name}"]
                    yield name, file.read()
                if not wanted:
                    return
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): get it again from {URL}") from error
    raise DataError(f"{path} lacks {', '.join(wanted)}: it is truncated, or not {ARCHIVE} of {URL}")


def _read_batch(file: bytes, where: Path) -> Batch:
    try:
        content = read_pickle(file)
    except pickle.UnpicklingError as error:
        raise DataError(f"{where} cannot be read as CIFAR-10: {error}. Get it again from {URL}") from error
    data, labels = content.get("data"), content.get("labels", ())
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3 * 32 * 32:
        raise DataError(f"{where} holds no rows of 3x32x32 pixels: it is not a file of CIFAR-10")
    whole = isinstance(labels, list) and len(labels) == len(data)
    if not whole or not all(type(k) is int and 0 <= k < len(CLASSES) for k in labels):
        raise DataError(f"{where} does not hold a label 0..{len(CLASSES) - 1} for each of its {len(data)} images")
    return data, np.array(labels, dtype=np.int64)


def _images(batches: list[Batch]) -> Images:
    pixels = np.concatenate([data for data, _ in batches]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([labels for _, labels in batches])
    return Images(pixels=torch.from_numpy(pixels), labels=torch.from_numpy(labels), classes=CLASSES)
