"""What a plan asks for: items of work, which of them belong together, what each builds on and costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.run.stacking import bundles
from robustdeq.evaluation.store.attack_spec import counts


@dataclass(frozen=True)
class Item:
    """An attack by its name, or None for the clean predictions, on a data shard."""

    attack: str | None
    shard: int


Bundle = tuple[Item, ...]
"""Items of one shard that are computed together."""


class Work:
    """The bundles of a plan on so many images, in the order they are done in."""

    def __init__(self, plan: Plan, images: int) -> None:
        self.plan, self.images = plan, images
        specs = sorted(plan.specs, key=lambda spec: spec.cost()) if plan.union else plan.specs
        self.specs = {spec.name: spec for spec in specs}
        self.bundles = list(self._bundles())
        self.items = [item for bundle in self.bundles for item in bundle]

    def order(self, rank: int, world_size: int) -> tuple[Bundle, ...]:
        """The bundles of one of several processes, then those of all, for when it has time to help."""
        own = [bundle for k, bundle in enumerate(self.bundles) if self._owner(k, bundle) % world_size == rank]
        offset = rank * len(self.bundles) // world_size  # those who help begin at different places
        return (*own, *self.bundles[offset:], *self.bundles[:offset])

    def limit(self, attack: str | None) -> int:
        """How many images it is for."""
        limit = None if attack is None else self.specs[attack].limit
        return self.images if limit is None else min(limit, self.images)

    def needs(self, item: Item) -> list[Item]:
        """Everything that the item builds on."""
        if item.attack is None:
            return []
        needed = [Item(None, item.shard)]
        if self.plan.union:
            needed += self.earlier(item)
        if self.specs[item.attack].oracle == "strongest":
            grid = {name for name, spec in self.specs.items() if spec.in_grid}
            needed += [other for other in self.items if other.attack in grid]
        return needed

    def earlier(self, item: Item) -> list[Item]:
        """The attacks that this shard's images have to survive first."""
        assert item.attack is not None
        specs, threat = list(self.specs.values()), self.plan.threat
        before = specs[: specs.index(self.specs[item.attack])]
        names = [spec.name for spec in before if counts(spec.group, spec.threat, threat)]
        return [Item(name, item.shard) for name in names if item.shard * self.plan.shard_size < self.limit(name)]

    def cost(self, item: Item) -> float:
        """In evaluations of f."""
        begin, end = self.span(item)
        per_image = self.plan.subject.states + 1.0 if item.attack is None else self.specs[item.attack].cost()
        return per_image * (end - begin)

    def span(self, item: Item) -> tuple[int, int]:
        """Its images: the first, and one past the last."""
        begin = item.shard * self.plan.shard_size
        return begin, min(begin + self.plan.shard_size, self.limit(item.attack))

    def _bundles(self) -> Iterator[Bundle]:
        plan, specs = self.plan, list(self.specs.values())
        size = min(plan.shard_size, self.images)
        alone = [(spec.name,) for spec in specs]  # images that leave tie the attacks of a shard together
        together = [
            tuple(spec.name for spec in bundle)
            for bundle in bundles(specs, plan.subject, shard_size=size, batch_size=plan.batch_size)
        ]
        for names in ((None,), *(alone if plan.union else together)):
            for shard in range(-(-self.limit(names[0]) // plan.shard_size)):
                yield tuple(Item(name, shard) for name in names)

    def _owner(self, position: int, bundle: Bundle) -> int:
        """Images that leave tie the attacks of a shard together; otherwise every bundle is free."""
        return bundle[0].shard if self.plan.union else position
