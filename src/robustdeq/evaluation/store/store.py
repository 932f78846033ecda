"""The results of an evaluation on disk: a manifest, and a Parquet file for every attack and data shard."""

from __future__ import annotations

import errno
import io
import json
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor
from typing_extensions import override

from robustdeq.evaluation.store.manifest import Manifest
from robustdeq.evaluation.store.schema import ATTACK_SCHEMA, CLEAN_SCHEMA
from robustdeq.host.files import remove_stale, write_atomically

MANIFEST = "manifest.json"
ROOM = 2**30
"""Bytes of rows that a snapshot keeps in memory; further rows are read from their files each time."""

Images = tuple[Tensor, Tensor]
"""Positions in the data, (B,), and pixels, (B, C, H, W)."""


class Store:
    """A folder of results. Files are written atomically, so every file in it is complete."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest, read once.

        Raises:
            ValueError: The folder is not a store.
        """
        content = self.read_manifest()
        if content is None:
            raise ValueError(f"{self.folder} is not a store of results: it has no {MANIFEST}")
        return content

    def read_manifest(self) -> Manifest | None:
        """Read the manifest again; None if there is none yet."""
        path = self.folder / MANIFEST
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(
                f"{path} is not valid JSON ({error}): restore it, or evaluate into another folder"
            ) from None
        return Manifest.from_json(content, str(path))

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        write_atomically(self.folder / MANIFEST, (json.dumps(manifest.as_json(), indent=2) + "\n").encode())
        self.forget()

    def forget(self) -> None:
        """Forget the manifest, so that it is read again: another process may have written it."""
        self.__dict__.pop("manifest", None)

    def clean_up(self) -> None:
        """Remove what killed processes left behind."""
        if self.folder.is_dir():
            remove_stale(self.folder)
            shutil.rmtree(self.folder / "begun", ignore_errors=True)  # where earlier versions kept partial items

    def path(self, attack: str | None, shard: int) -> Path:
        """File of the predictions under an attack (None: of the clean predictions) on a data shard."""
        folder = "clean" if attack is None else f"attacks/{attack}"
        return self.folder / folder / f"shard-{shard:04d}.parquet"

    def images_path(self, attack: str | None, shard: int) -> Path:
        """File of the adversarial images of an attack (None: of the clean images) on a data shard."""
        folder = "clean" if attack is None else f"images/{attack}"
        return self.folder / folder / f"shard-{shard:04d}.safetensors"

    def has(self, attack: str | None, shard: int) -> bool:
        """Whether an attack (None: the clean predictions) on a data shard is done."""
        return self.path(attack, shard).is_file()

    def write(self, attack: str | None, shard: int, rows: pl.DataFrame, images: Images | None = None) -> None:
        """Write the predictions under an attack (None: the clean ones) on a data shard, and images to keep.

        The rows are written last: where there are rows, there are images too.
        """
        if images is not None:
            write_atomically(self.images_path(attack, shard), as_safetensors(images))
        write_atomically(self.path(attack, shard), as_parquet(rows, _schema(attack)))

    def log_time(self, rank: int, record: dict[str, Any]) -> None:
        """Note how long a work item took. Times are shown and never compared, so a full disk is ignored."""
        try:
            with open(self.folder / f"times-{rank}.jsonl", "a") as file:
                begin = "\n" if file.tell() else ""  # the previous record may be truncated
                file.write(begin + json.dumps(record))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def times(self) -> pl.DataFrame:
        """Seconds that each finished work item took: attack, shard, images, seconds."""
        records = []
        for path in sorted(self.folder.glob("times-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    records.append(json.loads(line))
                except ValueError:  # truncated by a kill or a full disk
                    continue
        schema = {"attack": pl.String, "shard": pl.Int32, "images": pl.Int32, "seconds": pl.Float64}
        return pl.DataFrame(records, schema=schema)

    @property
    def attacks(self) -> list[str]:
        """Names of the attacks, in the order of the manifest."""
        return list(self.manifest.attacks)

    def shards(self, attack: str | None) -> list[int]:
        """Numbers of the finished data shards of an attack (None: of the clean predictions)."""
        files = self.path(attack, 0).parent.glob("shard-*.parquet")
        return sorted(int(path.stem.removeprefix("shard-")) for path in files)

    def complete(self, attack: str | None) -> bool:
        """Whether an attack (None: the clean predictions) is done on every image."""
        return set(self.shards(attack)) >= set(range(self.planned_shards(attack)))

    def planned_shards(self, attack: str | None) -> int:
        """Number of data shards that an attack has when it is done."""
        images = self.manifest.data.images
        images = images if attack is None else self.manifest.attacks[attack].spec.runs_on(images)
        return -(-images // self.manifest.shard_size)

    def clean(self) -> pl.LazyFrame:
        """Rows of all clean predictions (CLEAN_SCHEMA)."""
        return self._file_rows(None)

    def shard_rows(self, attack: str | None, shard: int) -> pl.LazyFrame:
        """Rows of an attack (None: of the clean predictions) on one data shard."""
        path = self.path(attack, shard)
        rows = pl.scan_parquet(path.absolute(), glob=False)  # a folder named seed[01] is no pattern
        try:
            rows.collect_schema()
        except pl.exceptions.ComputeError as error:
            raise ValueError(
                f"{path} is damaged ({error}): copy it again, or delete it and run the evaluation that made it"
            ) from None
        return rows

    def rows(self, attack: str | Sequence[str] | None = None) -> pl.LazyFrame:
        """Rows of one attack, some, or all (None), with the column `attack` in front of ATTACK_SCHEMA."""
        names = [attack] if isinstance(attack, str) else self.attacks if attack is None else attack
        for name in names:
            if name not in self.manifest.attacks:
                raise ValueError(f"{self.folder} has no attack {name!r}; it has {', '.join(self.attacks) or 'none'}")
        frames = [self._file_rows(name).select(pl.lit(name).alias("attack"), pl.all()) for name in names]
        return pl.concat(frames) if frames else pl.LazyFrame(schema={"attack": pl.String, **ATTACK_SCHEMA})

    def images(self, attack: str | None, shard: int) -> Images:
        """The adversarial images of an attack (None: the clean images) on a data shard."""
        path = self.images_path(attack, shard)
        if not path.is_file():
            raise ValueError(
                f"{self.folder} keeps no images of {attack}, shard {shard}: evaluate it again with keep_images"
            )
        return read_images(path)

    def has_images(self, attack: str | None) -> bool:
        """Whether the images of an attack (None: the clean images) are kept, on every data shard."""
        return all(self.images_path(attack, shard).is_file() for shard in range(self.planned_shards(attack)))

    def _file_rows(self, attack: str | None) -> pl.LazyFrame:
        """Rows of an attack (None: of the clean predictions) on all finished data shards."""
        frames = [self.shard_rows(attack, shard) for shard in self.shards(attack)]
        return pl.concat(frames) if frames else pl.LazyFrame(schema=_schema(attack))


class Snapshot(Store):
    """A store for readers that need the same rows many times: reads each file once, while memory lasts.

    It does not see what is written later.
    """

    def __init__(self, folder: str | Path, *, room: int = ROOM) -> None:
        super().__init__(folder)
        self._left = room
        self._shards: dict[str | None, list[int]] = {}
        self._frames: dict[str | None, pl.LazyFrame] = {}

    @override
    def shards(self, attack: str | None) -> list[int]:
        if attack not in self._shards:
            self._shards[attack] = super().shards(attack)
        return self._shards[attack]

    @override
    def _file_rows(self, attack: str | None) -> pl.LazyFrame:
        if attack not in self._frames:
            frame = super()._file_rows(attack)
            if self._left > 0:
                rows = frame.collect()
                self._left -= int(rows.estimated_size())
                frame = rows.lazy()
            self._frames[attack] = frame
        return self._frames[attack]


def _schema(attack: str | None) -> dict[str, Any]:
    return CLEAN_SCHEMA if attack is None else ATTACK_SCHEMA


def as_safetensors(images: Images) -> bytes:
    """Images as the content of a safetensors file."""
    index, pixels = images
    return save({"image": index.cpu().contiguous(), "pixels": pixels.cpu().contiguous()})


def read_images(path: Path) -> Images:
    """Read a file of images."""
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("image"), file.get_tensor("pixels")


def as_parquet(rows: pl.DataFrame, schema: dict[str, Any]) -> bytes:
    """Rows as the content of a Parquet file, encoded in memory so that a full disk is found by `write_atomically`."""
    buffer = io.BytesIO()
    rows.select([pl.col(name).cast(dtype) for name, dtype in schema.items()]).write_parquet(
        buffer, compression="zstd", statistics=False
    )
    return buffer.getvalue()
