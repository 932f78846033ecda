"""The finished batches of a work item that is not done yet: a kill of a long attack loses one batch, not the item."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.store.files import (
    DamagedFileError,
    Origin,
    as_parquet,
    as_safetensors,
    read_images,
    read_parquet,
)
from robustdeq.evaluation.store.schema import PARTIAL_SCHEMA
from robustdeq.evaluation.store.store import Store
from robustdeq.host.files import write_together

FOLDER = "partial"
WORTH = 10.0
"""Seconds; work items younger than this keep no partial results."""


@dataclass(frozen=True)
class PartialItem:
    """The rows of an item's first batches, and their images if they are kept; removed when the item is done."""

    store: Store
    attack: str
    shard: int
    keep_images: bool

    @staticmethod
    def any_in(store: Store) -> bool:
        """Whether the store has any partial item."""
        return (store.folder / FOLDER).is_dir()

    @property
    def _rows(self) -> Path:
        return self.store.folder / FOLDER / self.attack / f"shard-{self.shard:04d}.parquet"

    @property
    def _images(self) -> Path:
        return self._rows.with_suffix(".safetensors")

    def count(self) -> int:
        """Number of images that are done; 0 if nothing can be read."""
        try:
            return self._read_rows()["image"].n_unique()
        except (OSError, DamagedFileError):
            return 0

    @property
    def _origin(self) -> Origin:
        return Origin(self.attack, self.shard)

    def _read_rows(self) -> pl.DataFrame:
        return read_parquet(self._rows, PARTIAL_SCHEMA, self._origin)

    def read(self, index: Tensor, batch_size: int) -> tuple[pl.DataFrame, Tensor, int] | None:
        """Rows, images and their number, if they are whole batches of the first images in `index`; else None."""
        try:
            rows = self._read_rows()
            pixels = read_images(self._images, self._origin)[1] if self.keep_images else torch.empty(0)
        except (OSError, DamagedFileError):  # these batches are computed again
            return None
        found = rows["image"].unique(maintain_order=True).to_list()
        whole = len(found) % batch_size == 0 and found == index[: len(found)].tolist()
        if not whole or (self.keep_images and len(pixels) < len(found)):
            return None
        return rows, pixels[: len(found)], len(found)  # a kill between the two files leaves more images than rows

    def write(self, rows: pl.DataFrame, index: Tensor, pixels: Tensor) -> None:
        """Replace what is kept, unless another process has got further with the same item."""
        if self.count() > len(index):
            return
        images = {self._images: as_safetensors((index, pixels), self._origin)} if self.keep_images else {}
        with suppress(FileNotFoundError, FileExistsError):  # another process finishes the item and removes the folder
            write_together({**images, self._rows: as_parquet(rows, PARTIAL_SCHEMA, self._origin)})

    def remove(self) -> None:
        """Remove what is kept, when the item is done."""
        self._rows.unlink(missing_ok=True)
        self._images.unlink(missing_ok=True)
        with suppress(OSError):  # other items are kept there
            self._rows.parent.rmdir()
            self._rows.parent.parent.rmdir()
