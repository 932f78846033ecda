"""What a store says of itself, and whether a run may go on in it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from torch import Tensor

from robustdeq.evaluation.answers import Answers, alike
from robustdeq.evaluation.specs import AttackSpec, canonical
from robustdeq.evaluation.store import Store
from robustdeq.evaluation.subject import Subject
from robustdeq.provenance import provenance
from robustdeq.threat import Threat

FORMAT = "robustdeq-evaluation"
VERSION = 1
GROWING = ("attacks", "suites", "asked", "notes", "runs")
"""Fields that another run in the same store adds to; all others must be equal."""

SHOWN = 12
"""Differences of a refused run that are shown."""
PATIENCE = 600.0
"""Seconds that other processes wait for the manifest."""


class OtherStoreError(ValueError):
    """The folder holds results of another model or configuration."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run: what is evaluated, on what, by which attacks."""

    name: str
    """What the model is called."""
    scored: dict[str, Subject]
    """The predictors that every adversarial image is scored on; the first is "deployed"."""
    data: dict[str, Any]
    """Name, split, number of images, limit, checksum."""
    threat: Threat
    suite: str
    asked: dict[str, Any] = field(default_factory=dict)
    """How the suite was asked for: its name or file, and whether with aware attacks."""
    specs: Sequence[AttackSpec]
    notes: Sequence[str] = field(default=())
    seed: int
    batch_size: int
    shard_size: int
    union: bool
    all_states: bool
    """Score every state, not only the deployed one."""
    answers: Answers | None = None
    """What the deployed predictor says of the first images; None if it is random."""

    @property
    def subject(self) -> Subject:
        """The deployed predictor."""
        return self.scored["deployed"]

    def as_json(self, world_size: int) -> dict[str, Any]:
        """The manifest of a store in which this is the only run."""
        subject, started = self.subject, datetime.now(UTC).isoformat(timespec="seconds")
        content = {
            "format": FORMAT,
            "format_version": VERSION,
            "model": {
                "name": self.name,
                "hash": model_hash(subject),
                "metadata": subject.metadata,
                **subject.describe(),
            },
            "predictors": {
                name: {"deployed_state": s.deployed_state, "states": s.state_names, **s.describe()}
                for name, s in self.scored.items()
            },
            "dynamic": subject.dynamic is not None,
            "data": self.data,
            "threat": {"norm": type(self.threat).__name__, "eps": self.threat.eps},
            "seed": self.seed,
            "dtype": str(subject.dtype).removeprefix("torch."),
            "batch_size": self.batch_size,
            "shard_size": self.shard_size,
            "union": self.union,
            "all_states": self.all_states,
            "answers": self.answers,
            "attacks": {spec.name: spec.as_json() for spec in self.specs},
            "suites": [self.suite],
            "asked": [self.asked],
            "notes": list(self.notes),
            "runs": [{"started": started, **provenance(world_size), "batch_size": self.batch_size}],
        }
        return cast("dict[str, Any]", json.loads(json.dumps(content)))  # compared with what was read: no tuples


def model_hash(subject: Subject) -> str:
    """12 hex digits for weights and settings."""
    return hashlib.sha256(canonical(subject.describe()).encode()).hexdigest()[:12]


def data_hash(x: Tensor, y: Tensor) -> str:
    """12 hex digits for images and labels."""
    digest = hashlib.sha256(f"{tuple(x.shape)} {x.dtype}".encode())
    digest.update(x.cpu().contiguous().numpy().tobytes())
    digest.update(y.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def join(
    store: Store, plan: Plan, *, rank: int, world_size: int, heed_batch_mates: Callable[[], bool] = lambda: True
) -> None:
    """Begin a store or go on in it; refuse one of another model or configuration, and show the difference.

    Args:
        store: The store.
        plan: The run.
        rank: Of this process.
        world_size: How many there are.
        heed_batch_mates: Whether a scored predictor may, so that another batch size is another configuration; asked
            only where the batch size is another.
    """
    wanted = plan.as_json(world_size)
    found = store.read_manifest()
    if found is None:
        if rank == 0 and store.shards(None):
            raise OtherStoreError(
                f"{store.folder} holds results but no manifest.json to say of what: give another --out, or restore it"
            )
        merged = wanted
    else:
        free = found.get("batch_size") != plan.batch_size and not heed_batch_mates()
        lines = differences({**found, "batch_size": plan.batch_size} if free else found, wanted)
        if lines:
            raise OtherStoreError(
                f"{store.folder} holds results of another model or configuration; give another --out, "
                "or the same options:\n  " + "\n  ".join(_first(lines))
            )
        merged = merge(found, wanted)
    if rank == 0:
        store.write_manifest(merged)
    else:
        _wait_for(store, wanted["attacks"])
        store.forget()


def _first(lines: list[str]) -> list[str]:
    """One difference may be in all of 144 attacks."""
    more = len(lines) - SHOWN
    return lines if more <= 1 else [*lines[:SHOWN], f"and {more} more"]


def _wait_for(store: Store, attacks: Iterable[str]) -> None:
    """Until process 0 has written the manifest, which everything after reads."""
    end = time.monotonic() + PATIENCE
    wanted = set(attacks)
    while True:
        found = store.read_manifest()
        if found is not None and all(name in found["attacks"] for name in wanted):
            return
        if time.monotonic() > end:
            raise RuntimeError(
                f"process 0 has written no manifest in {store.folder} for {PATIENCE:.0f} s: "
                "is it a folder that all processes share?"
            )
        time.sleep(0.05)


def differences(found: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> list[str]:
    """What keeps a run out of a store, one line each."""
    lines = []
    free = ("model.name", "answers")  # the same model may be called by another path; answers are compared as numbers
    for key in sorted(found.keys() | wanted.keys()):
        a, b = found.get(key), wanted.get(key)
        if f"{prefix}{key}" in (*GROWING, *free):
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a!r} in the store, {b!r} asked for")
    if not prefix:
        before, now = found.get("answers"), wanted.get("answers")
        if not lines and before is not None and now is not None and not alike(before, now):
            lines.append("the predictor: it gives other logits than the one the store was begun with (answers)")
        for name in sorted(found["attacks"].keys() & wanted["attacks"].keys()):
            a, b = found["attacks"][name], wanted["attacks"][name]
            if a["hash"] != b["hash"]:
                ignored = ("hash", "cost", "group", "resolved", "is_aa")
                a, b = ({k: v for k, v in config.items() if k not in ignored} for config in (a, b))
                lines += differences(a, b, f"attacks.{name}.")
    return lines


def merge(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The manifest after another run; a run with nothing new in its provenance is not listed again."""
    runs = list(found["runs"])
    latest = {key: value for key, value in wanted["runs"][0].items() if key != "started"}
    before = [{"batch_size": found.get("batch_size"), **run} for run in runs]  # earlier versions wrote none
    if all({k: v for k, v in run.items() if k != "started"} != latest for run in before):
        runs += wanted["runs"]
    return {
        **found,
        "attacks": {**found["attacks"], **{k: v for k, v in wanted["attacks"].items() if k not in found["attacks"]}},
        **{key: _more(found.get(key, []), wanted[key]) for key in ("suites", "asked", "notes")},
        "answers": found["answers"] if "answers" in found else wanted["answers"],
        "runs": runs,
    }


def _more(found: list[Any], wanted: list[Any]) -> list[Any]:
    return [*found, *(entry for entry in wanted if entry not in found)]
