"""The finished batches of an item under way, so that a kill loses a batch of a long attack and not all of the item."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import torch
from safetensors import SafetensorError
from torch import Tensor

from robustdeq.evaluation.store.store import ATTACK_SCHEMA, Store, as_parquet, as_safetensors, read_images
from robustdeq.host.files import write_together

FOLDER = "begun"
WORTH = 10.0
"""Seconds; what an item has taken less than is computed again rather than kept."""

LATER = ("clean_prediction", "success")
"""What an item's rows get when all of them are there."""

BATCH_SCHEMA: dict[str, Any] = {
    "number": pl.Int32,
    **{name: kind for name, kind in ATTACK_SCHEMA.items() if name not in LATER},
}
"""Rows of a batch; number: which attack of a bundle."""

Batch = tuple[pl.DataFrame, Tensor]
"""Rows, and the adversarial images (of an earlier run only where they are kept)."""


@dataclass(frozen=True)
class Begun:
    """One item's batches, in a folder of its store until the item is done."""

    store: Store
    attack: str
    shard: int
    batch_size: int
    keep_images: bool

    @staticmethod
    def anywhere(store: Store) -> bool:
        """Whether any item of the store is under way."""
        return (store.folder / FOLDER).is_dir()

    def read(self, batch: int, index: Tensor) -> Batch | None:
        """What an earlier run kept of this batch of these images; a file that cannot be read is none."""
        rows, images = self._paths(batch)
        try:
            table = pl.read_parquet(rows.absolute(), glob=False)
            pixels = read_images(images)[1] if self.keep_images else torch.empty(0)
        except (OSError, pl.exceptions.PolarsError, SafetensorError):
            return None
        same = table["image"].unique(maintain_order=True).to_list() == index.tolist()
        return (table, pixels) if same else None

    def write(self, batch: int, rows: pl.DataFrame, index: Tensor, pixels: Tensor) -> None:
        """Keep a batch."""
        table, images = self._paths(batch)
        kept = {images: as_safetensors((index, pixels))} if self.keep_images else {}
        with suppress(FileNotFoundError, FileExistsError):  # another process finishes the item, the folder goes
            write_together({**kept, table: as_parquet(rows, BATCH_SCHEMA)})

    def count(self) -> int:
        """How many batches are kept."""
        return len(list(self._folder.glob("*.parquet")))

    def drop(self) -> None:
        """The item is done."""
        shutil.rmtree(self._item, ignore_errors=True)
        with suppress(OSError):  # other items are under way there
            self._item.parent.rmdir()
            self._item.parent.parent.rmdir()

    @property
    def _item(self) -> Path:
        return self.store.folder / FOLDER / self.attack / f"shard-{self.shard:04d}"

    @property
    def _folder(self) -> Path:
        """Batches of another size are of no use."""
        return self._item / f"by-{self.batch_size}"

    def _paths(self, batch: int) -> tuple[Path, Path]:
        name = self._folder / f"batch-{batch:04d}"
        return name.with_suffix(".parquet"), name.with_suffix(".safetensors")
