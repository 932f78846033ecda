"""The interval in which the final accuracy under the union of all attacks must lie, given what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from robustdeq.evaluation.store.attack_spec import AttackSpec, counts
from robustdeq.evaluation.store.store import Store
from robustdeq.threat import Threat


@dataclass(frozen=True)
class Interval:
    """Bounds of an accuracy."""

    low: float
    """Share of images that every attack has failed on."""
    high: float
    """Share of images that no attack has broken yet."""


class Bounds:
    """Follows which images are broken and which still have attacks to face; reads each finished file once."""

    def __init__(self, store: Store, specs: Sequence[AttackSpec], threat: Threat, images: int, shard_size: int) -> None:
        self.store = store
        self.shard_size = shard_size
        self.limits: dict[str | None, int] = {None: images} | {
            spec.name: images if spec.limit is None else min(images, spec.limit)
            for spec in specs
            if counts(spec.group, spec.threat, threat)
        }
        self.unbroken = np.ones(images, dtype=bool)
        self.pending = np.zeros(images, dtype=int)
        for limit in self.limits.values():
            self.pending[:limit] += 1
        self._included: set[tuple[str | None, int]] = set()

    def include(self, attack: str | None, shard: int) -> None:
        """Take a finished shard of an attack (None: of the clean predictions) into account, once."""
        if attack not in self.limits or (attack, shard) in self._included:
            return
        self._included.add((attack, shard))
        failed = ~pl.col("correct") if attack is None else pl.col("success")
        broken = self.store.shard_rows(attack, shard).filter(DEPLOYED_ROWS & failed).select("image").collect()["image"]
        self.unbroken[broken.to_numpy()] = False
        begin = shard * self.shard_size
        self.pending[begin : min(begin + self.shard_size, self.limits[attack])] -= 1

    def now(self) -> Interval:
        """The bounds as things stand."""
        done = self.pending == 0
        return Interval(low=float((self.unbroken & done).mean()), high=float(self.unbroken.mean()))


DEPLOYED_ROWS = pl.col("deployed") & (pl.col("predictor") == "deployed")
"""Rows of the deployed predictor at its deployed state."""
