"""The results of an evaluation on disk: Parquet shards, one per attack and data shard."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from robustdeq.evaluation.store.manifest import Manifest
from robustdeq.host.files import remove_stale, write_atomically

MANIFEST = "manifest.json"

Images = tuple[Tensor, Tensor]
"""Positions in the test order, and pixels."""

CLEAN_SCHEMA: dict[str, Any] = {
    "image": pl.Int32,
    "label": pl.Int32,
    "predictor": pl.String,
    "state": pl.String,
    "deployed": pl.Boolean,
    "prediction": pl.Int32,
    "margin": pl.Float32,
    "entropy": pl.Float32,
    "loss": pl.Float32,
    "correct": pl.Boolean,
    "residual": pl.Float32,
}

ATTACK_SCHEMA: dict[str, Any] = {
    "image": pl.Int32,
    "label": pl.Int32,
    "predictor": pl.String,
    "state": pl.String,
    "deployed": pl.Boolean,
    "clean_prediction": pl.Int32,
    "prediction": pl.Int32,
    "margin": pl.Float32,
    "entropy": pl.Float32,
    "loss": pl.Float32,
    "success": pl.Boolean,
    "queries": pl.Int32,
    "deviation": pl.Float32,
    "residual": pl.Float32,
}


class Store:
    """A folder of results; every file in it is whole."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def manifest(self) -> Manifest:
        """What was evaluated and how."""
        content = self.read_manifest()
        if content is None:
            raise ValueError(f"{self.folder} is not a store of results: it has no {MANIFEST}")
        return content

    def read_manifest(self) -> Manifest | None:
        """The manifest as it stands, None if there is none yet."""
        path = self.folder / MANIFEST
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{path} is not valid JSON ({error}): it was changed by hand; restore it") from None
        return Manifest.from_json(content, str(path))

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        write_atomically(self.folder / MANIFEST, (json.dumps(manifest.as_json(), indent=2) + "\n").encode())
        self.forget()

    def forget(self) -> None:
        """Read the manifest anew when it is next asked for: another process may have written it."""
        self.__dict__.pop("manifest", None)

    def clean_up(self) -> None:
        """Remove what killed processes left behind."""
        if self.folder.is_dir():
            remove_stale(self.folder)

    def clean_path(self, shard: int) -> Path:
        """Clean predictions of a data shard."""
        return self.folder / "clean" / f"shard-{shard:04d}.parquet"

    def attack_path(self, attack: str, shard: int) -> Path:
        """What an attack did to a data shard."""
        return self.folder / "attacks" / attack / f"shard-{shard:04d}.parquet"

    def clean_images_path(self, shard: int) -> Path:
        """The images as they were before any attack."""
        return self.folder / "clean" / f"shard-{shard:04d}.safetensors"

    def images_path(self, attack: str, shard: int) -> Path:
        """Its adversarial images."""
        return self.folder / "images" / attack / f"shard-{shard:04d}.safetensors"

    def has(self, attack: str | None, shard: int) -> bool:
        """Whether an item is done; None is the clean one."""
        return (self.clean_path(shard) if attack is None else self.attack_path(attack, shard)).is_file()

    def write_clean(self, shard: int, rows: pl.DataFrame, images: Images | None = None) -> None:
        """Finish the clean predictions of a shard; the rows come last, as with attacks."""
        self._write_images(self.clean_images_path(shard), images)
        write_atomically(self.clean_path(shard), as_parquet(rows, CLEAN_SCHEMA))

    def write_attack(self, attack: str, shard: int, rows: pl.DataFrame, images: Images | None = None) -> None:
        """Finish an item; its rows come last, so that an item with rows has its images too.

        Args:
            attack: Its name.
            shard: The data shard.
            rows: As of ATTACK_SCHEMA.
            images: The adversarial images, if they are kept.
        """
        self._write_images(self.images_path(attack, shard), images)
        write_atomically(self.attack_path(attack, shard), as_parquet(rows, ATTACK_SCHEMA))

    @staticmethod
    def _write_images(path: Path, images: Images | None) -> None:
        if images is not None:
            write_atomically(path, as_safetensors(images))

    def log_time(self, rank: int, record: dict[str, Any]) -> None:
        """Note how long an item took; shown beside results, never compared, so a full disk only loses the note."""
        try:
            with open(self.folder / f"times-{rank}.jsonl", "a") as file:
                begin = "\n" if file.tell() else ""  # the record before may have been cut off
                file.write(begin + json.dumps(record))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def times(self) -> pl.DataFrame:
        """How long each finished item took: attack, shard, images, seconds."""
        records = []
        for path in sorted(self.folder.glob("times-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    records.append(json.loads(line))
                except ValueError:  # cut off by a kill or a full disk
                    continue
        schema = {"attack": pl.String, "shard": pl.Int32, "images": pl.Int32, "seconds": pl.Float64}
        return pl.DataFrame(records, schema=schema)

    @property
    def attacks(self) -> list[str]:
        """Attacks of the manifest, in its order."""
        return list(self.manifest.attacks)

    def shards(self, attack: str | None) -> list[int]:
        """The finished shards of an attack (None: of the clean predictions)."""
        folder = self.clean_path(0).parent if attack is None else self.attack_path(attack, 0).parent
        return sorted(int(path.stem.removeprefix("shard-")) for path in folder.glob("shard-*.parquet"))

    def complete(self, attack: str | None) -> bool:
        """Whether every image that the manifest plans for it is done."""
        return set(self.shards(attack)) >= set(range(self.planned_shards(attack)))

    def planned_shards(self, attack: str | None) -> int:
        """How many shards it has when it is done."""
        images = self.manifest.data.images
        limit = None if attack is None else self.manifest.attacks[attack].spec.limit
        images = images if limit is None else min(limit, images)
        return -(-images // self.manifest.shard_size)

    def clean(self) -> pl.LazyFrame:
        """All clean rows; CLEAN_SCHEMA."""
        return self._file_rows(None)

    def shard_rows(self, attack: str | None, shard: int) -> pl.LazyFrame:
        """What the file of a finished item holds; None is the clean one."""
        path = self.clean_path(shard) if attack is None else self.attack_path(attack, shard)
        rows = pl.scan_parquet(path.absolute(), glob=False)  # a store may be called seed[01]: not a pattern
        try:
            rows.collect_schema()
        except pl.exceptions.ComputeError as error:
            raise ValueError(
                f"{path} is damaged ({error}): copy it again, or delete it and run the evaluation that made it"
            ) from None
        return rows

    def rows(self, attack: str | Sequence[str] | None = None) -> pl.LazyFrame:
        """All rows of one attack, some, or all, with the column `attack` in front of ATTACK_SCHEMA."""
        names = [attack] if isinstance(attack, str) else self.attacks if attack is None else attack
        for name in names:
            if name not in self.manifest.attacks:
                raise ValueError(f"{self.folder} has no attack {name!r}; it has {', '.join(self.attacks) or 'none'}")
        frames = [self._file_rows(name).select(pl.lit(name).alias("attack"), pl.all()) for name in names]
        return pl.concat(frames) if frames else pl.LazyFrame(schema={"attack": pl.String, **ATTACK_SCHEMA})

    def clean_images(self, shard: int) -> Images | None:
        """The images of a shard before any attack, if they are kept."""
        path = self.clean_images_path(shard)
        return read_images(path) if path.is_file() else None

    def images(self, attack: str, shard: int) -> Images:
        """The adversarial images of a shard."""
        path = self.images_path(attack, shard)
        if not path.is_file():
            raise ValueError(
                f"{self.folder} keeps no images of {attack}, shard {shard}: evaluate it again with keep_images"
            )
        return read_images(path)

    def has_images(self, attack: str) -> bool:
        """Whether its adversarial images are kept, of every shard that is planned for it."""
        shards = range(self.planned_shards(attack))
        return all(self.images_path(attack, shard).is_file() for shard in shards)

    def _file_rows(self, attack: str | None) -> pl.LazyFrame:
        """What the files of an attack hold (None: of the clean predictions)."""
        frames = [self.shard_rows(attack, shard) for shard in self.shards(attack)]
        empty = pl.LazyFrame(schema=CLEAN_SCHEMA if attack is None else ATTACK_SCHEMA)
        return pl.concat(frames) if frames else empty


def as_safetensors(images: Images) -> bytes:
    """Encoded in memory."""
    index, pixels = images
    return save({"image": index.cpu().contiguous(), "pixels": pixels.cpu().contiguous()})


def read_images(path: Path) -> Images:
    """What such a file holds."""
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("image"), file.get_tensor("pixels")


def as_parquet(rows: pl.DataFrame, schema: dict[str, Any]) -> bytes:
    """Encoded in memory, so that running out of disk is an error of ours and not of the encoder."""
    buffer = io.BytesIO()
    rows.select([pl.col(name).cast(dtype) for name, dtype in schema.items()]).write_parquet(
        buffer, compression="zstd", statistics=False
    )
    return buffer.getvalue()
