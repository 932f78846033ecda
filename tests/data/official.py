"""Tiny data in CIFAR-10's official format, and where the real data are."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
REAL = Path(os.environ.get("ROBUSTDEQ_DATA", Path(__file__).parents[3] / "shared" / "data"))

needs_cifar10 = pytest.mark.skipif(
    not (REAL / FOLDER / "test_batch").is_file(),
    reason="needs CIFAR-10: set ROBUSTDEQ_DATA to the folder that holds it",
)


def fake_batches(rows=4):
    """File name to (data, labels)."""
    rng = np.random.default_rng(0)
    return {
        name: (rng.integers(0, 256, (rows, 3072), dtype=np.uint8), rng.integers(0, 10, rows).tolist()) for name in NAMES
    }


def pickled(data, labels):
    """A batch file: protocol 2, as the official ones; Python 3 then writes the array with _codecs.encode."""
    return pickle.dumps({"batch_label": "a batch", "labels": labels, "data": data, "filenames": ["x.png"]}, protocol=2)


def short(text):
    return b"U" + bytes([len(text)]) + text.encode()


def pickled_by_python2(data, labels):
    """The opcodes of an official file: 8-bit strings, numpy.core.multiarray, a uint8 dtype."""
    raw = data.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + short("b") + b"tR"
    dtype = (
        b"cnumpy\ndtype\n("
        + short("u1")
        + b"K\x00K\x01tR(K\x03"
        + short("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    shape = b"(M" + data.shape[0].to_bytes(2, "little") + b"M" + data.shape[1].to_bytes(2, "little") + b"t"
    state = b"(K\x01" + shape + dtype + b"I00\n" + b"T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([k]) for k in labels) + b"e"
    return b"\x80\x02}(" + short("labels") + numbers + short("data") + array + state + b"u."


def fake_files(rows=4):
    return {name: pickled(*batch) for name, batch in fake_batches(rows).items()}


def write_folder(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def archive_bytes(files, prefix=f"{FOLDER}/"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
