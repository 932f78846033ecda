"""What a run is to do, and whether a store may be resumed with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from robustdeq.evaluation.run.fingerprint import alike
from robustdeq.evaluation.store.attack_spec import AttackSpec, canonical
from robustdeq.evaluation.store.manifest import (
    AttackRecord,
    Manifest,
    ModelRecord,
    PredictorRecord,
    RunRecord,
    SuiteRequest,
)
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Suite
from robustdeq.host.differences import differences as unequal
from robustdeq.host.provenance import provenance

GROWING = ("attacks", "suites", "asked", "notes", "runs")
"""Manifest fields that another run in the same store extends; all others must be equal."""
DESCRIPTIVE = ("model.name", "model.kind", "answers")
"""Manifest fields that may differ: the model may have another path, and answers are compared within a tolerance."""
SHOWN = 12
"""Number of differences that a refusal shows; one difference may be in all of 144 attacks."""
PATIENCE = 600.0
"""Seconds that other processes wait for process 0 to write the manifest."""


class OtherStoreError(ValueError):
    """The store holds results of another model or configuration, so this run cannot resume it."""


@dataclass(frozen=True)
class Plan:
    """What is evaluated, on which images, by which attacks."""

    wanted: Manifest
    """The manifest of a new store with this run alone."""
    scored: dict[str, Subject]
    """The predictors that every adversarial image is scored on; the first is "deployed"."""

    @property
    def subject(self) -> Subject:
        """The deployed predictor."""
        return self.scored["deployed"]

    @property
    def specs(self) -> list[AttackSpec]:
        """The attacks of this run."""
        return [record.spec for record in self.wanted.attacks.values()]

    def extended(self, specs: Iterable[AttackSpec]) -> Plan:
        """The plan with further attacks; predictors are not described again, as some change with every call."""
        more = {spec.name: AttackRecord(spec=spec, hash=spec.hash) for spec in specs}
        return replace(self, wanted=replace(self.wanted, attacks={**self.wanted.attacks, **more}))


def make_plan(
    name: str, scored: dict[str, Subject], suite: Suite, asked: SuiteRequest, world_size: int, **settings: Any
) -> Plan:
    """The plan of a run; `settings` are the fields of the manifest that do not follow from the other arguments."""
    subject, started = scored["deployed"], datetime.now(UTC).isoformat(timespec="seconds")
    description = subject.describe()
    wanted = Manifest(
        model=ModelRecord(
            name=name,
            kind=getattr(subject.model, "model_name", None) or name,
            hash=hashlib.sha256(canonical(description).encode()).hexdigest()[:12],
            metadata=subject.metadata,
            **description,
        ),
        predictors={
            name: PredictorRecord(deployed_state=s.deployed_state, states=s.state_names, **s.describe())
            for name, s in scored.items()
        },
        dynamic=subject.dynamic is not None,
        dtype=str(subject.dtype).removeprefix("torch."),
        attacks={spec.name: AttackRecord(spec=spec, hash=spec.hash) for spec in suite.specs},
        suites=[suite.name],
        asked=[asked],
        notes=suite.notes,
        runs=[RunRecord(started=started, batch_size=settings["batch_size"], **provenance(world_size))],
        **settings,
    )
    return Plan(wanted, scored)


def join(store: Store, wanted: Manifest, rank: int, batch_dependent: Callable[[], bool]) -> None:
    """Write the manifest of a new store, or resume a store.

    If predictions are `batch_dependent`, another batch size is another configuration; asked only if it differs.

    Raises:
        OtherStoreError: The store is of another model or configuration; the message lists the differences.
    """
    if rank == 0:
        store.update_manifest(lambda found: _joined(store, found, wanted, batch_dependent))
        return
    if (found := store.read_manifest()) is not None:
        _joined(store, found, wanted, batch_dependent)
    _wait_for(store, wanted.attacks)
    store.forget()


def _joined(store: Store, found: Manifest | None, wanted: Manifest, batch_dependent: Callable[[], bool]) -> Manifest:
    """The manifest of a store that this run joins; `found` is the one that the store has, if any."""
    if found is None:
        if store.shards(None):
            raise OtherStoreError(
                f"{store.folder} holds results but no manifest.json to say of what: give another --out, or restore it"
            )
        return wanted
    free = found.batch_size != wanted.batch_size and not batch_dependent()
    lines = _differences(replace(found, batch_size=wanted.batch_size) if free else found, wanted)
    if lines:
        if (more := len(lines) - SHOWN) > 1:
            lines = [*lines[:SHOWN], f"and {more} more"]
        raise OtherStoreError(
            f"{store.folder} holds results of another model or configuration; give another --out, "
            "or the same options:\n  " + "\n  ".join(lines)
        )
    return _merge(found, wanted)


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


def _differences(found: Manifest, wanted: Manifest) -> list[str]:
    """Why a run cannot resume a store, one line per difference; empty if it can."""
    lines = unequal(found.as_json(), wanted.as_json(), where="the store", free=(*GROWING, *DESCRIPTIVE))
    if not lines and found.answers and wanted.answers and not alike(found.answers, wanted.answers):
        lines.append("the predictor gives other logits than the one that created the store (answers)")
    for name in sorted(found.attacks.keys() & wanted.attacks.keys()):
        a, b = found.attacks[name], wanted.attacks[name]
        if a.hash != b.hash:
            prefix, ours, theirs = f"attacks.{name}.", a.spec.code, b.spec.code
            if changed := sorted(f for f in ours.keys() | theirs.keys() if ours.get(f) != theirs.get(f)):
                lines.append(
                    f"attacks.{name}: {' and '.join(changed)} changed since its results were stored; give the changed "
                    "attack another name in the suite to keep both"
                )
            before, after = ({**spec.identity(), "code": {}} for spec in (a.spec, b.spec))
            lines += unequal(before, after, where="the store", prefix=prefix)
    return lines


def _merge(found: Manifest, wanted: Manifest) -> Manifest:
    """The manifest of a resumed store; a run with the same provenance as an earlier one is not listed again."""

    def more(name: str) -> Any:
        before = getattr(found, name)
        return [*before, *(entry for entry in getattr(wanted, name) if entry not in before)]

    new = wanted.runs[0]
    return replace(
        found,
        attacks=found.attacks | {k: v for k, v in wanted.attacks.items() if k not in found.attacks},
        **{name: more(name) for name in ("suites", "asked", "notes")},
        answers=wanted.answers if found.answers == [] else found.answers,
        runs=found.runs if any(replace(run, started=new.started) == new for run in found.runs) else [*found.runs, new],
    )
