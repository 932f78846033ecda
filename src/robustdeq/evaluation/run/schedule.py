"""The work items of a plan: which run together, in which order, what each depends on and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.run.progress import Effort
from robustdeq.evaluation.run.stacking import bundles


@dataclass(frozen=True)
class Item:
    """One attack (None: the clean predictions) on one data shard."""

    attack: str | None
    shard: int


Bundle = tuple[Item, ...]
"""Items of one shard that are computed together."""


class Schedule:
    """The bundles of a plan on a number of images, in the order in which they run."""

    def __init__(self, plan: Plan, images: int) -> None:
        self.plan, self.images = plan, images
        specs = sorted(plan.specs, key=lambda spec: spec.cost()) if plan.wanted.union else plan.specs
        self.specs = {spec.name: spec for spec in specs}
        self.bundles = list(self._bundles())
        self.items = [item for bundle in self.bundles for item in bundle]

    def _bundles(self) -> Iterator[Bundle]:
        plan, specs = self.plan, list(self.specs.values())
        size = min(plan.wanted.shard_size, self.images)
        # under union an attack depends on which images the attacks before it have broken, so each runs by itself
        groups = (
            [(s,) for s in specs] if plan.wanted.union else bundles(specs, plan.subject, size, plan.wanted.batch_size)
        )
        for names in ((None,), *(tuple(spec.name for spec in group) for group in groups)):
            for shard in range(-(-self.limit(names[0]) // plan.wanted.shard_size)):
                yield tuple(Item(name, shard) for name in names)

    def order(self, rank: int, world_size: int) -> tuple[Bundle, ...]:
        """The bundles of one of several processes, then all bundles, so that a process that is done helps the others.

        Under union the attacks of a shard depend on each other, so a shard belongs to one process.
        """
        owners = [b[0].shard if self.plan.wanted.union else k for k, b in enumerate(self.bundles)]
        own = [bundle for owner, bundle in zip(owners, self.bundles, strict=True) if owner % world_size == rank]
        offset = rank * len(self.bundles) // world_size  # helpers start at different places
        return (*own, *self.bundles[offset:], *self.bundles[:offset])

    def limit(self, attack: str | None) -> int:
        """Number of images that the attack runs on."""
        return self.images if attack is None else self.specs[attack].runs_on(self.images)

    def span(self, item: Item) -> tuple[int, int]:
        """Position of the item's first image, and one past its last."""
        begin = item.shard * self.plan.wanted.shard_size
        return begin, min(begin + self.plan.wanted.shard_size, self.limit(item.attack))

    def needs(self, item: Item) -> list[Item]:
        """The items that must be done before this one."""
        if item.attack is None:
            return []
        needed = [Item(None, item.shard)]
        if self.leaves(item.attack):
            needed += self.earlier(item)
        if self.specs[item.attack].oracle == "strongest":
            needed += [other for other in self.items if other.attack and self.specs[other.attack].in_grid]
        return needed

    def leaves(self, attack: str | None) -> bool:
        """Whether images leave before the attack, because attacks before it have broken them."""
        return attack is not None and (self.plan.wanted.union or self.specs[attack].survivors is not None)

    def earlier(self, item: Item) -> list[Item]:
        """The attacks that the shard's images must survive before this one."""
        assert item.attack is not None
        names, spec = list(self.specs), self.specs[item.attack]
        before = (self.specs[name] for name in names[: names.index(item.attack)])
        inside = [
            other.name
            for other in before
            if other.counts(self.plan.wanted.threat) and not (spec.survivors == "deployed" and other.black)
        ]
        return [
            Item(name, item.shard) for name in inside if item.shard * self.plan.wanted.shard_size < self.limit(name)
        ]

    def effort(self, items: Iterable[Item], unbroken: NDArray[np.bool_], kept: Mapping[Item, int]) -> Effort:
        """What the items take; some attacks leave broken images alone, and `kept` images of partial items are done."""
        total = Effort()
        for item in items:
            begin, end = self.span(item)
            spec = None if item.attack is None else self.specs[item.attack]
            images = (end - begin) - min(kept.get(item, 0), end - begin)
            leaves = spec is not None and (self.leaves(spec.name) or not spec.every_image)
            share = float(unbroken[begin:end].mean()) if leaves else 1.0
            cost = self.plan.subject.states + 1.0 if spec is None else spec.cost()
            total += Effort(share * cost * images, (share if self.leaves(item.attack) else 1.0) * images)
        return total
