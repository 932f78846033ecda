"""The files of a store: rows as Parquet and images as safetensors, sealed when written and checked when read."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from robustdeq.host.files import read_regular
from robustdeq.host.seals import BLANK, MARK, seal_holds, sealed

KEY = "robustdeq"
"""Metadata key of what a file is (attack, shard) and of its seal; one key, because safetensors shuffles several."""

Images = tuple[Tensor, Tensor]
"""Positions in the data, (B,), and pixels, (B, C, H, W)."""


class DamagedFileError(ValueError):
    """A file is not what was written."""

    def __init__(self, path: Path, why: object) -> None:
        said = " ".join(str(why).split())
        super().__init__(
            f"{path} is damaged ({said}): copy it again, or delete it and run the evaluation that made it again"
        )


@dataclass(frozen=True)
class Origin:
    """Which file of a store it is."""

    attack: str | None
    """None for clean predictions."""
    shard: int

    @property
    def metadata(self) -> dict[str, str]:
        """What the file carries of itself."""
        return {KEY: json.dumps({**asdict(self), "seal": BLANK.decode()})}

    def check(self, path: Path, metadata: Mapping[str, str]) -> None:
        """Refuse a file that says to be another; those of earlier versions say nothing."""
        text = json.dumps({**asdict(self), "seal": MARK.decode()})[:-2]  # a seal with a damaged name is none
        if not metadata.get(KEY, text).startswith(text):
            raise DamagedFileError(path, f"it says to be {metadata[KEY]}")


def as_parquet(rows: pl.DataFrame, schema: dict[str, Any], origin: Origin) -> bytes:
    """Rows as the content of a Parquet file, encoded in memory so that a full disk is found by `write_atomically`."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*metadata.*experimental")
        rows.select([pl.col(name).cast(dtype) for name, dtype in schema.items()]).write_parquet(
            buffer, compression="zstd", statistics=False, metadata=origin.metadata
        )
    return sealed(buffer.getvalue())


def read_parquet(path: Path, schema: dict[str, Any], origin: Origin) -> pl.DataFrame:
    """The rows of a Parquet file, whole and of this schema.

    Raises:
        DamagedFileError: They are not; nothing of a file with a broken seal is parsed.
    """
    return parsed(path, intact(path), schema, origin)


def parsed(path: Path, content: bytes, schema: dict[str, Any], origin: Origin) -> pl.DataFrame:
    """The rows of a Parquet file with this content; as for `read_parquet`."""
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        rows = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OSError, MemoryError) as error:
        raise DamagedFileError(path, error) from None
    origin.check(path, metadata)
    if dict(rows.schema) != schema:
        raise DamagedFileError(path, f"its columns are {rows.schema}, expected {schema}")
    return rows


def as_safetensors(images: Images, origin: Origin) -> bytes:
    """Images as the content of a safetensors file."""
    index, pixels = images
    tensors = {"image": index.cpu().contiguous(), "pixels": pixels.cpu().contiguous()}
    return sealed(save(tensors, metadata=origin.metadata))


def read_images(path: Path, origin: Origin) -> Images:
    """The images of a safetensors file, whole.

    Raises:
        DamagedFileError: They are not; nothing of a file with a broken seal is parsed.
    """
    content = intact(path)
    try:
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        tensors = load(content)
        index, pixels = tensors["image"], tensors["pixels"]
    except (SafetensorError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise DamagedFileError(path, error) from None
    origin.check(path, metadata)
    if index.shape != pixels.shape[:1] or index.dtype != torch.int64 or not pixels.is_floating_point():
        raise DamagedFileError(path, f"{tuple(index.shape)} {index.dtype} positions of {tuple(pixels.shape)} pixels")
    return index, pixels


def intact(path: Path) -> bytes:
    """The content of a file, unless its seal is broken."""
    content = read_regular(path)
    if seal_holds(content) is False:
        raise DamagedFileError(path, "its checksum does not fit its content")
    return content
