"""Runs the work items that are missing in a store; any number of processes may share a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace

import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.analysis.metrics import strongest
from robustdeq.evaluation.run import resume
from robustdeq.evaluation.run.batch import Batches
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.run.progress import Bounds, Effort, Progress, Tracker
from robustdeq.evaluation.run.resume import PartialItem
from robustdeq.evaluation.run.schedule import Bundle, Item, Schedule
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.manifest import Manifest, ResolvedOracle
from robustdeq.evaluation.store.schema import PARTIAL_SCHEMA
from robustdeq.evaluation.store.store import KEYS, Store
from robustdeq.host.interrupts import stopping

REFRESH = 5.0
"""Seconds between two looks at what other processes have done."""


class _OutOfTime(Exception):
    """The time budget ended within an attack."""


class Runner:
    """One process's share of a plan."""

    def __init__(
        self,
        plan: Plan,
        x: Tensor,
        y: Tensor,
        store: Store,
        *,
        budget: float | None = None,
        keep_images: bool = False,
        rank: int = 0,
        world_size: int = 1,
        report: Callable[[Progress], None] | None = None,
    ) -> None:
        self.plan, self.store, self.keep_images = plan, store, keep_images
        self.rank, self.world_size = rank, world_size
        self.report = report or (lambda progress: None)
        self.given_up: str | None = None
        """The attack that the end of the budget cut off."""
        self.schedule = Schedule(plan, len(y))
        specs = [record.spec for record in store.manifest.attacks.values()]  # attacks of earlier suites count too
        self.bounds = Bounds(store, specs, plan.wanted.threat, len(y), plan.wanted.shard_size)
        self.batches = Batches(plan, x, y, store.folder, self._watch)
        self.tracker = Tracker(budget)
        self._done: set[Item] = set()
        self._kept: dict[Item, int] = {}
        """Number of images that an earlier run has finished, of partial items."""
        self._doing, self._where = "looking", ""
        self._refreshed = 0.0

    def run(self) -> bool:
        """Do what is missing; returns whether everything is done, which a time budget may prevent."""
        order = self.schedule.order(self.rank, self.world_size)
        with stopping(self._what_is_stored):
            self._refresh()
            self._find_partial_items()
            self._report()
            with suppress(_OutOfTime):
                while (bundle := next(filter(self._can_run, order), None)) is not None:
                    if self.tracker.over_budget(self._effort(bundle)):
                        break
                    self._run(bundle)
            self._refresh()
        return len(self._done) == len(self.schedule.items)

    def _can_run(self, bundle: Bundle) -> bool:
        """Whether something of the bundle is missing, and everything that it needs is done."""
        missing = not all(map(self._is_done, bundle))
        return missing and all(self._is_done(needed) for item in bundle for needed in self.schedule.needs(item))

    def _is_done(self, item: Item) -> bool:
        if item not in self._done and self._is_stored(item):
            self._done.add(item)
            self.bounds.include(item.attack, item.shard)
        return item in self._done

    def _is_stored(self, item: Item) -> bool:
        """Whether the store has the item's rows, and its images where they are to be kept."""
        attack, shard, store = item.attack, item.shard, self.store
        return (not self._keeps(attack) or store.images_path(attack, shard).is_file()) and store.has(attack, shard)

    def _keeps(self, attack: str | None) -> bool:
        """Whether the attack's images are to be kept; those of another store are kept there."""
        return self.keep_images and (attack is None or self.schedule.specs[attack].attack != "stored")

    def _refresh(self) -> None:
        """See what other processes have done, and what other suites have left in the store."""
        for item in self.schedule.items:
            self._is_done(item)
        for name in (None, *self.store.attacks):
            for shard in self.store.shards(name):
                self.bounds.include(name, shard)
        self._refreshed = time.monotonic()

    def _find_partial_items(self) -> None:
        """Count the images of partial items, and remove what is left of items that are done."""
        for item in self.schedule.items if PartialItem.any_in(self.store) else ():
            if item in self._done:
                self._partial(item).remove()
            elif count := self._partial(item).count():
                self._kept[item] = count

    def _partial(self, item: Item) -> PartialItem:
        return PartialItem(self.store, str(item.attack), item.shard, self._keeps(item.attack))

    def _effort(self, items: Iterable[Item]) -> Effort:
        return self.schedule.effort(items, self.bounds.unbroken, self._kept)

    def _run(self, bundle: Bundle) -> None:
        """Compute a bundle, write what is missing of it, and note the time it took."""
        first = bundle[0]
        self._doing = f"{first.attack or 'clean'}{f' and {len(bundle) - 1} more' if len(bundle) > 1 else ''}"
        self._report()
        self.tracker.begin(self._effort(bundle))
        self.batches.scoring_seconds = 0.0
        index = torch.arange(*self.schedule.span(first))
        if first.attack is None:
            table = pl.concat([self.batches.clean(part) for part in index.split(self.plan.wanted.batch_size)])
            kept = (index, self.batches.images(index)) if self.keep_images else None
            self.store.write(None, first.shard, table, kept)
            images, written = len(index), list(bundle)
        else:
            images, written = self._run_attacks(
                bundle, self._survivors(first, index) if self.schedule.leaves(first.attack) else index
            )
        seconds = self.tracker.elapsed()
        if first.attack is not None:
            self.tracker.finish(images, self.batches.scoring_seconds)
        for item in written:
            record = {"images": images // len(bundle), "seconds": round(seconds / len(bundle), 4)}
            self.store.log_time(self.rank, {**asdict(item), **record})
        for item in bundle:
            self._is_done(item)
        self._report()

    def _run_attacks(self, bundle: Bundle, index: Tensor) -> tuple[int, list[Item]]:
        """Attack and score the images of a bundle, resuming after the batches that an earlier run has kept.

        All attacks of a bundle are recomputed even if some are stored: batches, and so rounding, are always the same.

        Returns:
            The number of images that this run has attacked, and the items that it has written.
        """
        first, size = bundle[0], self.plan.wanted.batch_size
        specs = [resolved(self.store, self.schedule.specs[str(item.attack)]) for item in bundle]
        pairs = torch.cartesian_prod(torch.arange(len(specs)), index).reshape(-1, 2)
        partial = self._partial(first)  # only a bundle of one item can have partial results
        table, pixels = pl.DataFrame(schema=PARTIAL_SCHEMA), self.batches.images(index[:0]).cpu()
        done = 0
        if len(pairs) > size and (found := partial.read(index, size)) is not None:
            table, pixels, done = found
        computed = -done
        for part in pairs[done:].split(size) if done < len(pairs) else ():
            if done and self._is_stored(first):
                break  # another process was faster
            self._where = f", image {done + 1:,} of {len(pairs):,}"
            rows, images = self.batches.attacked(specs, part)
            table, done = pl.concat([table, rows]), done + len(part)
            pixels = torch.cat([pixels, images]) if self._keeps(first.attack) else pixels
            if done < len(pairs) and self.tracker.elapsed() >= resume.WORTH:
                partial.write(table, index[:done], pixels)
        written = [item for item in bundle if not self._is_stored(item)]
        for item in written:
            number = bundle.index(item)
            kept = (index, pixels[pairs[:, 0] == number]) if self._keeps(item.attack) else None
            self._write(item, table.filter(pl.col("number") == number).drop("number"), kept)
        for item in bundle if PartialItem.any_in(self.store) else ():
            self._partial(item).remove()
        return computed + done, written

    def _write(self, item: Item, table: pl.DataFrame, images: tuple[Tensor, Tensor] | None) -> None:
        """Finish an item, with each image's clean prediction beside the attacked one."""
        clean = self.store.shard_rows(None, item.shard).select(*KEYS, clean_prediction="prediction").collect()
        table = table.join(clean, on=KEYS, how="left", maintain_order="left").with_columns(
            success=pl.col("prediction") != pl.col("label")
        )
        self.store.write(item.attack, item.shard, table, images)

    def _survivors(self, item: Item, index: Tensor) -> Tensor:
        """Images that are classified correctly, and that no earlier attack of this plan has broken."""
        who = self.schedule.specs[str(item.attack)].survivors or "deployed"
        rows = pl.col("deployed") & (pl.col("predictor") == who)
        lost = [self.store.shard_rows(None, item.shard).filter(rows & ~pl.col("correct"))]
        for other in self.schedule.earlier(item):
            lost.append(self.store.shard_rows(other.attack, other.shard).filter(rows & pl.col("success")))
        broken = set(pl.concat([part.select("image") for part in lost]).collect()["image"].to_list())
        return torch.tensor([i for i in index.tolist() if i not in broken], dtype=torch.int64)

    def _watch(self, queries: Tensor) -> None:
        """Called at every pass of the oracle: ends the attack if the budget is spent, and reports once a second."""
        if self.tracker.over_budget():
            self.given_up = self._doing
            raise _OutOfTime
        if self.tracker.is_due():
            self._report(f"{self._where}, pass {int(queries.max()):,}")

    def say(self, doing: str) -> None:
        """Report what is being done after the attacks, for which there is no forecast."""
        self._doing = doing
        self.report(replace(self._progress(), remaining=None))

    def _report(self, where: str = "") -> None:
        """Report the progress; within an attack, where it is."""
        if self.world_size > 1 and not where and time.monotonic() - self._refreshed > REFRESH:
            self._refresh()
        self.report(self._progress(where))

    def _progress(self, where: str = "") -> Progress:
        effort = self._effort(i for i in self.schedule.items if i not in self._done)
        remaining = self.tracker.remaining(effort, within=bool(where))
        return Progress(
            doing=self._doing + where,
            done=len(self._done),
            total=len(self.schedule.items),
            rate=self.tracker.rate(),
            remaining=None if remaining is None else remaining / self.world_size,
            robust=self.bounds.now(),
        )

    def _what_is_stored(self) -> str:
        stored = sum(map(self._is_stored, self.schedule.items))
        return f"{stored} of {len(self.schedule.items)} items are stored in {self.store.folder}"


def resolved(store: Store, spec: AttackSpec) -> AttackSpec:
    """The attack with the grid's strongest oracle in place of "strongest".

    The manifest remembers the choice, so that all shards face the same oracle.
    """
    if spec.oracle != "strongest":
        return spec
    store.forget()
    record = store.manifest.attacks[spec.name]
    if record.resolved is None:
        found = strongest(store)
        options = {**found.oracle_options, **spec.oracle_options}
        chosen = ResolvedOracle(attack_of_grid=found.attack, oracle="unrolled", oracle_options=options)

        def choose(manifest: Manifest | None) -> Manifest:
            assert manifest is not None
            before = manifest.attacks[spec.name]  # another process may have chosen meanwhile
            attacks = manifest.attacks | {spec.name: replace(before, resolved=before.resolved or chosen)}
            return replace(manifest, attacks=attacks)

        record = store.update_manifest(choose).attacks[spec.name]
    assert record.resolved is not None
    return replace(spec, oracle=record.resolved.oracle, oracle_options=record.resolved.oracle_options)
