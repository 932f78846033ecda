"""A store that keeps its rows in memory, for readers that need the same rows many times, such as the report."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from typing_extensions import override

from robustdeq.evaluation.store.store import Store

ROOM = 2**30
"""Bytes of rows to keep in memory; further rows are read from their files each time."""


class Snapshot(Store):
    """Reads each file once, while memory lasts; does not see what is written later."""

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
