"""The interval in which the final robust accuracy must lie, given what is done."""

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
    """Of an accuracy."""

    low: float
    """Images that every attack has failed on."""
    high: float
    """Images that no attack has broken yet."""


class Bounds:
    """Follows which images are broken, and which still have attacks to face; reads each finished file once."""

    def __init__(self, store: Store, specs: Sequence[AttackSpec], threat: Threat, images: int, shard_size: int) -> None:
        self.store = store
        self.shard_size = shard_size
        self.limits = {
            spec.name: images if spec.limit is None else min(images, spec.limit)
            for spec in specs
            if counts(spec.group, spec.threat, threat)
        }
        self.unbroken = np.ones(images, dtype=bool)
        self.pending = np.zeros(images, dtype=int)
        for limit in (images, *self.limits.values()):
            self.pending[:limit] += 1

    def include(self, attack: str | None, shard: int) -> None:
        """Take a finished item into account; None is the clean one."""
        if attack is not None and attack not in self.limits:
            return
        begin = shard * self.shard_size
        end = begin + self.shard_size if attack is None else min(begin + self.shard_size, self.limits[attack])
        failed = ~pl.col("correct") if attack is None else pl.col("success")
        broken = (
            self.store.shard_rows(attack, shard)
            .filter(pl.col("deployed") & (pl.col("predictor") == "deployed") & failed)
            .select("image")
            .collect()["image"]
        )
        self.unbroken[broken.to_numpy()] = False
        self.pending[begin:end] -= 1

    def now(self) -> Interval:
        """As things stand."""
        done = self.pending == 0
        return Interval(low=float((self.unbroken & done).mean()), high=float(self.unbroken.mean()))
