"""A store as it was when it was first looked at: for readers that ask for the same rows again and again."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from robustdeq.evaluation.store.store import Store

ROOM = 2**30
"""Bytes of rows that are kept in memory; what comes after is read from its files each time."""


class Snapshot(Store):
    """Reads each file once, as far as there is room; what is written later it does not see."""

    def __init__(self, folder: str | Path, *, room: int = ROOM) -> None:
        super().__init__(folder)
        self._left = room
        self._shards: dict[str | None, list[int]] = {}
        self._frames: dict[str | None, pl.LazyFrame] = {}

    def shards(self, attack: str | None) -> list[int]:
        """As they were."""
        if attack not in self._shards:
            self._shards[attack] = super().shards(attack)
        return self._shards[attack]

    def _file_rows(self, attack: str | None) -> pl.LazyFrame:
        if attack not in self._frames:
            frame = super()._file_rows(attack)
            if self._left > 0:
                rows = frame.collect()
                self._left -= int(rows.estimated_size())
                frame = rows.lazy()
            self._frames[attack] = frame
        return self._frames[attack]
