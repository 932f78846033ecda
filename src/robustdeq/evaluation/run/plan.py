"""What a run is to do, and whether a store may be resumed with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from robustdeq.evaluation.run.fingerprint import alike
from robustdeq.evaluation.store.attack_spec import AttackSpec, canonical
from robustdeq.evaluation.store.manifest import (
    Answers,
    AttackRecord,
    DataRecord,
    Manifest,
    ModelRecord,
    PredictorRecord,
    RunRecord,
    SuiteRequest,
)
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.host.provenance import provenance
from robustdeq.threat import Threat

GROWING = ("attacks", "suites", "asked", "notes", "runs")
"""Manifest fields that another run in the same store extends; all others must be equal."""
DESCRIPTIVE = ("model.name", "model.kind", "answers")
"""Manifest fields that may differ: the model's name may be another path, and answers are compared as numbers."""
SHOWN = 12
"""Number of differences that a refusal shows; one difference may be in all of 144 attacks."""
PATIENCE = 600.0
"""Seconds that other processes wait for process 0 to write the manifest."""

T = TypeVar("T")


class OtherStoreError(ValueError):
    """The store holds results of another model or configuration, so this run cannot resume it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is evaluated, on which images, by which attacks."""

    name: str
    """Name of the model."""
    scored: dict[str, Subject]
    """The predictors that every adversarial image is scored on; the first is "deployed"."""
    data: DataRecord
    threat: Threat
    suite: str
    asked: SuiteRequest
    specs: Sequence[AttackSpec]
    notes: Sequence[str] = field(default=())
    seed: int
    batch_size: int
    shard_size: int
    union: bool
    all_states: bool
    """Whether every state is scored, not only the deployed one."""
    answers: Answers | None = None
    """Fingerprint of the deployed predictor; None if it is random."""

    @property
    def subject(self) -> Subject:
        """The deployed predictor."""
        return self.scored["deployed"]

    def manifest(self, world_size: int) -> Manifest:
        """The manifest of a new store with this run."""
        subject, started = self.subject, datetime.now(UTC).isoformat(timespec="seconds")
        description = subject.describe()
        return Manifest(
            model=ModelRecord(
                name=self.name,
                kind=subject.model_kind or self.name,
                hash=hashlib.sha256(canonical(description).encode()).hexdigest()[:12],
                metadata=subject.metadata,
                **description,
            ),
            predictors={
                name: PredictorRecord(deployed_state=s.deployed_state, states=s.state_names, **s.describe())
                for name, s in self.scored.items()
            },
            dynamic=subject.dynamic is not None,
            data=self.data,
            threat=self.threat,
            seed=self.seed,
            dtype=str(subject.dtype).removeprefix("torch."),
            batch_size=self.batch_size,
            shard_size=self.shard_size,
            union=self.union,
            all_states=self.all_states,
            answers=self.answers,
            attacks={spec.name: AttackRecord.of(spec) for spec in self.specs},
            suites=[self.suite],
            asked=[self.asked],
            notes=list(self.notes),
            runs=[RunRecord(started=started, batch_size=self.batch_size, **provenance(world_size))],
        )


def join(
    store: Store, plan: Plan, *, rank: int, world_size: int, batch_dependent: Callable[[], bool] = lambda: True
) -> None:
    """Write the manifest of a new store, or resume a store; refuse one of another model or configuration.

    Args:
        store: The store.
        plan: What this run is to do.
        rank: Rank of this process.
        world_size: Number of processes.
        batch_dependent: Tells whether predictions may depend on the batch, so that another batch size is another
            configuration. Called only if the batch size differs.

    Raises:
        OtherStoreError: The store differs; the message lists the differences.
    """
    wanted = plan.manifest(world_size)
    found = store.read_manifest()
    if found is None:
        if rank == 0 and store.shards(None):
            raise OtherStoreError(
                f"{store.folder} holds results but no manifest.json to say of what: give another --out, or restore it"
            )
        merged = wanted
    else:
        free = found.batch_size != plan.batch_size and not batch_dependent()
        lines = differences(replace(found, batch_size=plan.batch_size) if free else found, wanted)
        if lines:
            if (more := len(lines) - SHOWN) > 1:
                lines = [*lines[:SHOWN], f"and {more} more"]
            raise OtherStoreError(
                f"{store.folder} holds results of another model or configuration; give another --out, "
                "or the same options:\n  " + "\n  ".join(lines)
            )
        merged = merge(found, wanted)
    if rank == 0:
        store.write_manifest(merged)
    else:
        _wait_for(store, wanted.attacks)
        store.forget()


def _wait_for(store: Store, attacks: Iterable[str]) -> None:
    """Wait until process 0 has written a manifest with these attacks."""
    end = time.monotonic() + PATIENCE
    wanted = set(attacks)
    while True:
        found = store.read_manifest()
        if found is not None and wanted <= found.attacks.keys():
            return
        if time.monotonic() > end:
            raise RuntimeError(
                f"process 0 has written no manifest in {store.folder} for {PATIENCE:.0f} s: "
                "is it a folder that all processes share?"
            )
        time.sleep(0.05)


def differences(found: Manifest, wanted: Manifest) -> list[str]:
    """Why a run cannot resume a store, one line per difference; empty if it can."""
    lines = _unequal(found.as_json(), wanted.as_json(), free=(*GROWING, *DESCRIPTIVE))
    if not lines and found.answers and wanted.answers and not alike(found.answers, wanted.answers):
        lines.append("the predictor gives other logits than the one the store was begun with (answers)")
    for name in sorted(found.attacks.keys() & wanted.attacks.keys()):
        a, b = found.attacks[name], wanted.attacks[name]
        if a.hash != b.hash:
            lines += _unequal(a.spec.identity(), b.spec.identity(), prefix=f"attacks.{name}.")
    return lines


def _unequal(a: dict[str, Any], b: dict[str, Any], *, prefix: str = "", free: Sequence[str] = ()) -> list[str]:
    """One line per path at which two JSON objects differ, without the paths in `free`."""
    lines = []
    for key in sorted(a.keys() | b.keys()):
        old, new = a.get(key), b.get(key)
        if f"{prefix}{key}" in free:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _unequal(old, new, prefix=f"{prefix}{key}.", free=free)
        elif old != new:
            lines.append(f"{prefix}{key}: {old!r} in the store, {new!r} asked for")
    return lines


def merge(found: Manifest, wanted: Manifest) -> Manifest:
    """The manifest of a resumed store; a run with the same provenance as an earlier one is not listed again."""
    new = wanted.runs[0]
    return replace(
        found,
        attacks={**found.attacks, **{k: v for k, v in wanted.attacks.items() if k not in found.attacks}},
        suites=_more(found.suites, wanted.suites),
        asked=_more(found.asked, wanted.asked),
        notes=_more(found.notes, wanted.notes),
        answers=wanted.answers if found.answers == [] else found.answers,
        runs=found.runs if any(run.same_setup(new) for run in found.runs) else [*found.runs, new],
    )


def _more(found: list[T], wanted: list[T]) -> list[T]:
    return [*found, *(entry for entry in wanted if entry not in found)]
