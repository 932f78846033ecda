"""The fewest attacks that break every image that any of them breaks: a set cover."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NODES = 20_000
"""Branches to look into before the greedy answer stands as an upper bound."""


@dataclass(frozen=True)
class Cover:
    """Columns that cover what all columns cover."""

    columns: list[int]
    proven: bool
    """No smaller one exists; otherwise their number is an upper bound (greedy is within a factor ln n + 1)."""


def smallest_cover(broken: NDArray[np.bool_]) -> Cover:
    """Of (images, attacks); the smallest by branch and bound if that ends, else the greedy one."""
    rows = np.unique(broken[broken.any(axis=1)], axis=0)
    if len(rows) == 0:
        return Cover([], proven=True)
    sets = [_bits(rows[:, k]) for k in range(rows.shape[1])]
    everything = _bits(np.ones(len(rows), dtype=bool))
    search = _Search(sets, _greedy(sets, everything))
    proven = search.run(everything, [])
    return Cover(sorted(search.best), proven)


def _bits(flags: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(flags).tobytes(), "big")


def _greedy(sets: list[int], left: int) -> list[int]:
    chosen = []
    while left:
        best = max(range(len(sets)), key=lambda k: (sets[k] & left).bit_count())
        chosen.append(best)
        left &= ~sets[best]
    return chosen


class _Search:
    """Branch on an image with the fewest attacks that break it; cut where the largest sets left cannot do better."""

    def __init__(self, sets: list[int], best: list[int]) -> None:
        self.sets = sets
        self.best = best
        self.nodes = 0

    def run(self, left: int, chosen: list[int]) -> bool:
        """Whether the branch was searched to its end."""
        if not left:
            if len(chosen) < len(self.best):
                self.best = list(chosen)
            return True
        self.nodes += 1
        if self.nodes > NODES:
            return False
        sizes = [(s & left).bit_count() for s in self.sets]
        if len(chosen) + self._at_least(sizes, left.bit_count()) >= len(self.best):
            return True
        candidates = self._rarest(left)
        candidates.sort(key=lambda k: -sizes[k])
        ended = True
        for k in candidates:
            ended &= self.run(left & ~self.sets[k], [*chosen, k])
        return ended

    @staticmethod
    def _at_least(sizes: list[int], needed: int) -> int:
        covered = count = 0
        for size in sorted(sizes, reverse=True):
            if covered >= needed:
                break
            covered += size
            count += 1
        return count

    def _rarest(self, left: int) -> list[int]:
        best: list[int] = []
        bit = left
        while bit:
            low = bit & -bit
            holders = [k for k, s in enumerate(self.sets) if s & low]
            if not best or len(holders) < len(best):
                best = holders
            if len(best) == 1:
                break
            bit ^= low
        return best
