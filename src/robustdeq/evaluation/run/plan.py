"""A run as it was asked for, and whether it may resume in a store."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

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
from robustdeq.host.differences import differences as unequal
from robustdeq.host.provenance import provenance
from robustdeq.threat import Threat

GROWING = ("attacks", "suites", "asked", "notes", "runs")
"""Fields that another run in the same store adds to; all others must be equal."""
DESCRIPTIVE = ("model.name", "model.kind", "answers")
"""The same model may be called by another path; answers are compared as numbers."""
SHOWN = 12
"""Differences of a refused run that are shown."""
PATIENCE = 600.0
"""Seconds that other processes wait for the manifest."""

T = TypeVar("T")


class OtherStoreError(ValueError):
    """The folder holds results of another model or configuration."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run: what is evaluated, on what, by which attacks."""

    name: str
    """What the model is called."""
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
    """Score every state, not only the deployed one."""
    answers: Answers | None = None
    """Logits of the deployed predictor on the first images; None if it is random."""

    @property
    def subject(self) -> Subject:
        """The deployed predictor."""
        return self.scored["deployed"]

    def manifest(self, world_size: int) -> Manifest:
        """The manifest of a store in which this is the only run."""
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
    """Begin a store or resume in it; refuse one of another model or configuration, and show the difference.

    Args:
        store: The store.
        plan: The run.
        rank: Of this process.
        world_size: Number of processes.
        batch_dependent: Whether a scored predictor's answer to an image may depend on its batch, so that another batch
            size is another configuration; called only where the batch size differs.
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
            raise OtherStoreError(
                f"{store.folder} holds results of another model or configuration; give another --out, "
                "or the same options:\n  " + "\n  ".join(_first(lines))
            )
        merged = merge(found, wanted)
    if rank == 0:
        store.write_manifest(merged)
    else:
        _wait_for(store, wanted.attacks)
        store.forget()


def _first(lines: list[str]) -> list[str]:
    """One difference may be in all of 144 attacks."""
    more = len(lines) - SHOWN
    return lines if more <= 1 else [*lines[:SHOWN], f"and {more} more"]


def _wait_for(store: Store, attacks: Iterable[str]) -> None:
    """Wait until process 0 has written the manifest, which everything after reads."""
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
    """What keeps a run out of a store, one line each."""
    lines = unequal(found.as_json(), wanted.as_json(), where="the store", free=(*GROWING, *DESCRIPTIVE))
    if not lines and found.answers and wanted.answers and not alike(found.answers, wanted.answers):
        lines.append("the predictor: its logits differ from those of the one that began the store (answers)")
    for name in sorted(found.attacks.keys() & wanted.attacks.keys()):
        a, b = found.attacks[name], wanted.attacks[name]
        if a.hash != b.hash:
            lines += unequal(a.spec.identity(), b.spec.identity(), where="the store", prefix=f"attacks.{name}.")
    return lines


def merge(found: Manifest, wanted: Manifest) -> Manifest:
    """The manifest after another run; a run with nothing new in its provenance is not listed again."""
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
