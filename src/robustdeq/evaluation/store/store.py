"""The results of an evaluation on disk: a manifest, and a Parquet file for every attack and data shard."""

from __future__ import annotations

import errno
import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from typing_extensions import override

from robustdeq.evaluation.store.files import (
    DamagedFileError,
    Images,
    Origin,
    as_parquet,
    as_safetensors,
    intact,
    parsed,
    read_images,
)
from robustdeq.evaluation.store.manifest import Manifest
from robustdeq.evaluation.store.schema import ATTACK_SCHEMA, CLEAN_SCHEMA
from robustdeq.host.files import locked, read_regular, remove_stale, write_atomically

MANIFEST = "manifest.json"
ROOM = 2**30
"""Bytes of rows that a snapshot keeps in memory; further rows are read from their files each time."""
NULLABLE = ("margin", "entropy", "loss", "residual", "deviation", "clean_prediction")
"""The columns that may have gaps: not measured, or left out by results/condense.py."""
KEYS = ["image", "predictor", "state"]
"""The columns that tell the rows of a data shard apart."""
SHARD = re.compile(r"shard-(\d{4,})")


class Store:
    """A folder of results. Files are written atomically, so every file in it is complete."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._examined: set[tuple[Path, int, int]] = set()
        """Files of rows that were found to fit the store, each with its size and time."""

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
            content = json.loads(read_regular(path))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is not valid JSON ({error}): restore it, or evaluate into another folder"
            ) from None
        return Manifest.from_json(content, str(path))

    def update_manifest(self, change: Callable[[Manifest | None], Manifest]) -> Manifest:
        """Replace the manifest by what `change` makes of it; no other process does the same meanwhile."""
        with locked(self.folder):
            manifest = change(self.read_manifest())
            self.write_manifest(manifest)
        return manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, whatever it is; `update_manifest` heeds other processes."""
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
            write_atomically(self.images_path(attack, shard), as_safetensors(images, Origin(attack, shard)))
        write_atomically(self.path(attack, shard), as_parquet(rows, _schema(attack), Origin(attack, shard)))

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
            for line in read_regular(path).splitlines():
                with suppress(ValueError, TypeError, KeyError):  # truncated by a kill or a full disk
                    record = json.loads(line)
                    attack = None if record["attack"] is None else str(record["attack"])
                    shard, images = (int(record[name]) % 2**31 for name in ("shard", "images"))
                    records.append((attack, shard, images, float(record["seconds"])))
        schema = {"attack": pl.String, "shard": pl.Int32, "images": pl.Int32, "seconds": pl.Float64}
        return pl.DataFrame(records, schema=schema, orient="row")

    @property
    def attacks(self) -> list[str]:
        """Names of the attacks, in the order of the manifest."""
        return list(self.manifest.attacks)

    def shards(self, attack: str | None) -> list[int]:
        """Numbers of the finished data shards of an attack (None: of the clean predictions)."""
        files = self.path(attack, 0).parent.glob("*.parquet")
        return sorted(int(found[1]) for path in files if (found := SHARD.fullmatch(path.stem)))

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

    def span(self, attack: str | None, shard: int) -> range:
        """The positions of the images of a data shard."""
        manifest, begin = self.manifest, shard * self.manifest.shard_size
        images = manifest.data.images
        end = images if attack is None else manifest.attacks[attack].spec.runs_on(images)
        return range(begin, max(begin, min(begin + manifest.shard_size, end)))

    def shard_rows(self, attack: str | None, shard: int) -> pl.LazyFrame:
        """Rows of an attack (None: of the clean predictions) on one data shard.

        Raises:
            DamagedFileError: The file is not what was written, or belongs elsewhere.
        """
        path = self.path(attack, shard)
        try:
            state = path.stat()
        except OSError as error:  # a link that leads nowhere
            raise DamagedFileError(path, error.strerror) from None
        content = intact(path)
        if (found := (path, state.st_size, state.st_mtime_ns)) not in self._examined:
            self._examine(path, parsed(path, content, _schema(attack), Origin(attack, shard)), attack, shard)
            self._examined.add(found)
        return pl.scan_parquet(io.BytesIO(content))

    def _examine(self, path: Path, rows: pl.DataFrame, attack: str | None, shard: int) -> None:
        """Refuse rows of other images than the shard's, and of an attack on another predictor than that of `clean`."""
        needed = [name for name in rows.columns if name not in NULLABLE]
        if rows.select(needed).null_count().sum_horizontal().item():
            raise DamagedFileError(path, "values are missing")
        for predictor, state, deployed in rows.select("predictor", "state", "deployed").unique().iter_rows():
            record = self.manifest.predictors.get(predictor)
            if record is None or state not in record.states or deployed != (state == record.deployed_state):
                raise DamagedFileError(path, f"the manifest knows no predictor {predictor} with a state {state}")
        span, images = self.span(attack, shard), rows["image"].unique().sort()
        manifest = self.manifest
        some = attack is not None and (manifest.union or manifest.attacks[attack].spec.survivors is not None)
        if some and (outside := set(images) - set(span)):
            raise DamagedFileError(path, f"it has image {min(outside)}, and the shard's are {_shown(span)}")
        if not some and images.to_list() != list(span):
            raise DamagedFileError(path, f"it has {len(images)} images, and the shard's are {_shown(span)}")
        if attack is None or not self.has(None, shard):
            return
        clean = self.shard_rows(None, shard).select(*KEYS, true_label="label", true_prediction="prediction").collect()
        beside = rows.filter("deployed").join(clean, on=KEYS, how="inner")
        if beside.filter(
            pl.col("label").ne_missing(pl.col("true_label"))
            | pl.col("clean_prediction").ne_missing(pl.col("true_prediction"))
        ).height:
            raise DamagedFileError(path, "its labels or clean predictions are not those of the folder clean")

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
        index, pixels = read_images(path, Origin(attack, shard))
        if not set(index.tolist()) <= set(self.span(attack, shard)):
            raise DamagedFileError(path, f"it has other images than {_shown(self.span(attack, shard))}")
        return index, pixels

    def has_images(self, attack: str | None) -> bool:
        """Whether the images of an attack (None: the clean images) are kept, on every data shard."""
        return all(self.images_path(attack, shard).is_file() for shard in range(self.planned_shards(attack)))

    def _file_rows(self, attack: str | None) -> pl.LazyFrame:
        """Rows of an attack (None: of the clean predictions) on all finished data shards."""
        if attack is not None and (lost := set(self.shards(attack)) - set(self.shards(None))):
            raise ValueError(
                f"{self.path(None, min(lost))} is missing: copy it again, or run the evaluation that made the store "
                "again, which computes what is missing"
            )
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


def _shown(span: range) -> str:
    return f"{span.start} to {span.stop - 1}" if span else "none"


def _schema(attack: str | None) -> dict[str, Any]:
    return CLEAN_SCHEMA if attack is None else ATTACK_SCHEMA
