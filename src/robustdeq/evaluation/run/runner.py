"""Runs what is missing in a store, bundle by bundle of items: an item is an attack on a data shard.

A bundle is one item, or as many as fit into one batch together (see `stacking`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.analysis.metrics import strongest
from robustdeq.evaluation.run import resume as begun
from robustdeq.evaluation.run.bounds import Bounds, Interval
from robustdeq.evaluation.run.forecast import NOTHING, Effort, Forecast
from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.run.resume import BATCH_SCHEMA, Batch, Begun
from robustdeq.evaluation.run.schedule import Bundle, Item, Work
from robustdeq.evaluation.run.scoring import Scores, rows, score
from robustdeq.evaluation.run.stacking import attack_together
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.manifest import ResolvedOracle
from robustdeq.evaluation.store.store import ATTACK_SCHEMA, Images, Store
from robustdeq.evaluation.suites.stored import stored_images
from robustdeq.host.interrupts import stopping

KEYS = ["image", "predictor", "state"]
EVERY = 1.0
"""Seconds between two words on how far an attack is."""


@dataclass(frozen=True)
class Progress:
    """What an evaluation shows while it runs."""

    doing: str
    done: int
    total: int
    rate: float
    """Images per second and attack, over this run."""
    remaining: float | None
    """Seconds, foretold from the costs of what is left; None before anything is done."""
    robust: Interval
    """Where the accuracy under the union of all attacks must lie."""


class _OutOfTime(Exception):
    """The budget ended within an attack."""


class Runner:
    """One process's share of a plan; any number of them may work on the same store."""

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
        self.plan, self.x, self.y, self.store = plan, x, y, store
        self.work = Work(plan, len(y))
        self.specs, self.items = self.work.specs, self.work.items
        self.budget, self.keep_images = budget, keep_images
        self.rank, self.world_size = rank, world_size
        self.report = report or (lambda progress: None)
        self.given_up: str | None = None
        """What the end of the budget cut off."""
        self.bounds = Bounds(store, store_specs(store), plan.threat, len(y), plan.shard_size)
        self._order = self.work.order(rank, world_size)
        self._done: set[Item] = set()
        self._counted: set[Item] = set()
        self._started = self._refreshed = self._said = 0.0
        self._doing, self._where = "looking", ""
        self._forecast = Forecast()
        self._seconds = self._scoring = self._images = 0.0
        self._computed = 0
        """Images of the bundle in hand that this run has attacked."""
        self._kept: dict[Item, int] = {}
        """Images of items under way that an earlier run has attacked."""
        self._began, self._under_way = 0.0, NOTHING

    def run(self) -> bool:
        """Do what is missing; whether everything is done now (a time budget may have ended it before)."""
        self._started = time.monotonic()
        with stopping(self._what_is_stored):
            self._refresh()
            self._look_for_begun()
            self._report()
            with suppress(_OutOfTime):
                while (bundle := self._next()) is not None and not self._over_budget(bundle):
                    self._run(bundle)
            self._refresh()
        return len(self._done) == len(self.items)

    def _look_for_begun(self) -> None:
        """Know what earlier runs have begun, and remove what is left of items that are done."""
        for item in self.items if Begun.anywhere(self.store) else ():
            batches = self._begun(item)
            if item in self._done:
                batches.drop()
            elif count := batches.count():
                self._kept[item] = count * self.plan.batch_size

    def _begun(self, item: Item) -> Begun:
        return Begun(self.store, str(item.attack), item.shard, self.plan.batch_size, self._keeps(item.attack))

    def _next(self) -> Bundle | None:
        """A bundle of this process, else whatever else is missing and can be done."""
        return next((b for b in self._order if not all(map(self._is_done, b)) and all(map(self._is_ready, b))), None)

    def _is_ready(self, item: Item) -> bool:
        return all(map(self._is_done, self.work.needs(item)))

    def _is_done(self, item: Item) -> bool:
        if item not in self._done and self._is_stored(item):
            self._done.add(item)
            self._count(item)
        return item in self._done

    def _is_stored(self, item: Item) -> bool:
        """Whether a store has the item's rows, and its images where they are to be kept."""
        attack, shard, store = item.attack, item.shard, self.store
        images = store.clean_images_path(shard) if attack is None else store.images_path(attack, shard)
        return (not self._keeps(attack) or images.is_file()) and store.has(attack, shard)

    def _keeps(self, attack: str | None) -> bool:
        """Whether its images are to be kept; those of another store are kept there."""
        return self.keep_images and (attack is None or self.specs[attack].attack != "stored")

    def _count(self, item: Item) -> None:
        """Let the bounds know of a stored item, once."""
        if item not in self._counted:
            self._counted.add(item)
            self.bounds.include(item.attack, item.shard)

    def _refresh(self) -> None:
        """See what other processes have done, and what other suites have left in the store."""
        for item in self.items:
            self._is_done(item)
        for name in (None, *self.store.attacks):
            for shard in self.store.shards(name):
                self._count(Item(name, shard))
        self._refreshed = time.monotonic()

    def _over_budget(self, bundle: Bundle) -> bool:
        """Whether the time is over, or would be before these items end, going by those before them."""
        if self.budget is None:
            return False
        spent = time.monotonic() - self._started
        foretold = self._forecast.seconds(self._effort(bundle)) or 0.0
        return spent + foretold > self.budget

    def _effort(self, items: Iterable[Item]) -> Effort:
        """What they take; of attacks that leave broken images alone by the images that are still unbroken."""
        total = NOTHING
        for item in items:
            begin, end = self.work.span(item)
            leaves = item.attack is not None and (self.plan.union or not self.specs[item.attack].every_image)
            share = float(self.bounds.unbroken[begin:end].mean()) if leaves else 1.0
            scored = share if self.plan.union else 1.0
            left = max(0.0, 1 - self._kept.get(item, 0) / (end - begin))
            total += Effort(share * self.work.cost(item), scored * (end - begin)) * left
        return total

    def _run(self, bundle: Bundle) -> None:
        first = bundle[0]
        self._doing = f"{first.attack or 'clean'}{f' and {len(bundle) - 1} more' if len(bundle) > 1 else ''}"
        self._report()
        began, effort, self._scoring = time.monotonic(), self._effort(bundle), 0.0
        self._computed = 0
        self._said = self._began = began
        self._under_way = effort
        index = torch.arange(*self.work.span(first))
        if first.attack is None:
            self._run_clean(first.shard, index)
            written = bundle
        else:
            index = self._survivors(first, index) if self.plan.union else index
            written = self._run_attacks(bundle, index)
        seconds = time.monotonic() - began
        if first.attack is not None:
            self._forecast.learn(effort, seconds, self._scoring)
            self._seconds += seconds
            self._images += self._computed
        share = round(seconds / len(bundle), 4)
        images = len(index) if first.attack is None else self._computed // len(bundle)
        for item in written:  # what was stored before has its record
            self.store.log_time(self.rank, {**asdict(item), "images": images, "seconds": share})
        for item in bundle:
            self._is_done(item)
        self._report()

    def _run_clean(self, shard: int, index: Tensor) -> None:
        frames = []
        for part in index.split(self.plan.batch_size):
            frames += halving(self._clean_rows, part)
        table = pl.concat(frames).with_columns(correct=pl.col("prediction") == pl.col("label"))
        self.store.write_clean(shard, table, (index, self._batch(index)[0]) if self.keep_images else None)

    def _clean_rows(self, index: Tensor) -> pl.DataFrame:
        x, y = self._batch(index)
        return pl.concat(
            [
                rows(name, s, score(s, x, all_states=self.plan.all_states), index, y, diagnostics=True)
                for name, s in self.plan.scored.items()
            ]
        )

    def _run_attacks(self, bundle: Bundle, index: Tensor) -> Bundle:
        """All of a bundle, whatever of it is stored already, so that its batches are those of every other such run.

        Returns:
            What was written.
        """
        shard, specs = bundle[0].shard, [self._resolved(self.specs[str(item.attack)]) for item in bundle]
        pairs = torch.cartesian_prod(torch.arange(len(specs)), index)  # number in the bundle, image
        batches = pairs.split(self.plan.batch_size) if len(pairs) else ()
        single = self._begun(bundle[0]) if len(batches) > 1 else None  # several items share one batch
        done: list[Batch] = []
        for number, part in enumerate(batches):
            if single is not None and self._is_stored(bundle[0]):
                break  # by another process
            self._where = f", image {number * self.plan.batch_size + 1:,} of {len(pairs):,}"
            done.append(self._batch_of(specs, part, number, single if number + 1 < len(batches) else None))
        written = []
        for number, item in enumerate(bundle):
            if self._is_stored(item):
                continue
            table = pl.DataFrame(schema=ATTACK_SCHEMA).drop(*begun.LATER)
            kept = index, self._batch(index)[0]  # a file of no images says that none had to be attacked
            if done:
                table = pl.concat([rows for rows, _ in done]).filter(pl.col("number") == number).drop("number")
            if done and self._keeps(item.attack):
                kept = index, torch.cat([pixels for _, pixels in done])[pairs[:, 0] == number]
            self._write(str(item.attack), shard, table, kept if self._keeps(item.attack) else None)
            written.append(item)
        for item in bundle if Begun.anywhere(self.store) else ():
            self._begun(item).drop()
        return tuple(written)

    def _batch_of(self, specs: list[AttackSpec], pairs: Tensor, number: int, single: Begun | None) -> Batch:
        """A batch of an earlier run, or one that is computed now, and kept for a later run if it is worth that."""
        found = None if single is None else single.read(number, pairs[:, 1])
        if found is not None:
            return found
        parts = halving(lambda some: self._attacked_rows(specs, some), pairs)
        rows = pl.concat([rows for rows, _ in parts]).select(pl.col(name).cast(to) for name, to in BATCH_SCHEMA.items())
        pixels = torch.cat([pixels for _, pixels in parts])
        self._computed += len(pairs)
        if single is not None and time.monotonic() - self._began >= begun.WORTH:
            single.write(number, rows, pairs[:, 1], pixels)
        return rows, pixels

    def _write(self, attack: str, shard: int, table: pl.DataFrame, kept: Images | None) -> None:
        clean = self.store.shard_rows(None, shard).select(*KEYS, clean_prediction="prediction").collect()
        table = table.join(clean, on=KEYS, how="left", maintain_order="left").with_columns(
            success=pl.col("prediction") != pl.col("label")
        )
        self.store.write_attack(attack, shard, table, kept)

    def _attacked_rows(self, specs: list[AttackSpec], pairs: Tensor) -> tuple[pl.DataFrame, Tensor]:
        """Rows of attacked images, in the order of the pairs within each predictor and state, and the images."""
        number, index = pairs[:, 0], pairs[:, 1]
        x, y = self._batch(index)
        images, queries, logits = self._attack(specs, number, x, y, index)
        began, diagnostics = time.monotonic(), specs[0].diagnostics
        frames = []
        for name, subject in self.plan.scored.items():
            if name == "deployed" and logits is not None and not self.plan.all_states:
                scores = Scores([subject.deployed_state], logits[None])  # the attack has judged by them already
            else:
                scores = score(subject, images, all_states=self.plan.all_states)
            clean = score(subject, x, all_states=True) if diagnostics and subject.dynamic else None
            also = {"queries": queries, "number": number}
            frames.append(rows(name, subject, scores, index, y, clean=clean, diagnostics=diagnostics, also=also))
        self._scoring += time.monotonic() - began
        return pl.concat(frames), images.cpu()

    def _attack(
        self, specs: list[AttackSpec], number: Tensor, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Adversarial images, queries, and the deployed logits if the attack was on the deployed predictor."""
        if specs[0].attack == "stored":
            return stored_images(specs[0], self.store.folder, x, index), torch.zeros_like(y), None
        if self.plan.all_states:  # the same images, and no defended pass only to judge what is scored anyway
            specs = [replace(spec, on="base") if spec.every_image and spec.blind else spec for spec in specs]
        result = attack_together(specs, number, self.plan.subject, self.plan.seed, x, y, index, self._watch)
        return result.images, result.queries, result.logits if specs[0].on == "deployed" else None

    def _watch(self, queries: Tensor) -> None:
        """Say how far an attack is: one on many images, with thousands of passes, may take an hour."""
        now = time.monotonic()
        if self.budget is not None and now - self._started > self.budget:
            self.given_up = self._doing
            raise _OutOfTime
        if now - self._said >= EVERY:
            self._said = now
            foretold = self._forecast.seconds(self._under_way) or 0.0
            self._report(f"{self._where}, pass {int(queries.max()):,}", spent=min(now - self._began, foretold))

    def _batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        device = self.plan.subject.device or self.x.device
        x = self.x[index.to(self.x.device)]
        if x.dtype == torch.uint8:
            x = x.to(self.plan.subject.dtype) / 255
        return x.to(device), self.y[index.to(self.y.device)].to(device)

    def _survivors(self, item: Item, index: Tensor) -> Tensor:
        """Images that are classified correctly, and that no earlier attack of this plan has broken."""
        own = pl.col("deployed") & (pl.col("predictor") == "deployed")
        lost = [self.store.shard_rows(None, item.shard).filter(own & ~pl.col("correct"))]
        for other in self.work.earlier(item):
            assert other.attack is not None
            lost.append(self.store.shard_rows(other.attack, other.shard).filter(own & pl.col("success")))
        broken = set(pl.concat([part.select("image") for part in lost]).collect()["image"].to_list())
        return torch.tensor([i for i in index.tolist() if i not in broken], dtype=torch.int64)

    def _resolved(self, spec: AttackSpec) -> AttackSpec:
        """With the grid's strongest oracle in place, which the manifest then names: all shards face the same one."""
        if spec.oracle != "strongest":
            return spec
        manifest = self.store.read_manifest()
        assert manifest is not None
        record = manifest.attacks[spec.name]
        if record.resolved is None:
            found = strongest(self.store)
            options = {**found.oracle_options, **spec.oracle_options}
            chosen = ResolvedOracle(attack_of_grid=found.attack, oracle="unrolled", oracle_options=options)
            record = replace(record, resolved=chosen)
            self.store.write_manifest(replace(manifest, attacks={**manifest.attacks, spec.name: record}))
        assert record.resolved is not None
        return replace(spec, oracle=record.resolved.oracle, oracle_options=record.resolved.oracle_options)

    def _report(self, where: str = "", spent: float = 0.0) -> None:
        """Tell how things stand; within an attack where it is, and the seconds of its forecast that are over."""
        if self.world_size > 1 and not where and time.monotonic() - self._refreshed > 5:
            self._refresh()
        remaining = self._forecast.seconds(self._effort(item for item in self.items if item not in self._done))
        self.report(
            Progress(
                doing=self._doing + where,
                done=len(self._done),
                total=len(self.items),
                rate=self._images / self._seconds if self._seconds else 0.0,
                remaining=None if remaining is None else (remaining - spent) / self.world_size,
                robust=self.bounds.now(),
            )
        )

    def _what_is_stored(self) -> str:
        stored = sum(map(self._is_stored, self.items))
        return f"{stored} of {len(self.items)} items are stored in {self.store.folder}"


def store_specs(store: Store) -> list[AttackSpec]:
    """All attacks of a store, those of earlier suites too: the union is over all of them."""
    return [record.spec for record in store.manifest.attacks.values()]
