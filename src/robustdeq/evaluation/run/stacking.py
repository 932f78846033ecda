"""Attacks that share batches: if a data shard is smaller than a batch, several attacks of the grid fill it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks import PGD, AttackResult
from robustdeq.attacks.oracles import StackedStates, UnrolledState
from robustdeq.attacks.task import Task, Watch, keys_of, random_starts
from robustdeq.evaluation.store.attack_spec import AttackSpec, canonical
from robustdeq.evaluation.suites.build import build_attack, build_oracle
from robustdeq.evaluation.suites.subject import Subject

OWN = ("steps", "damping")
"""Oracle options that may differ between the images of a batch."""


def bundles(
    specs: Sequence[AttackSpec], subject: Subject, shard_size: int, batch_size: int
) -> list[tuple[AttackSpec, ...]]:
    """Groups attacks that can share a batch with a whole data shard each; groups are ordered by their first attack.

    The groups depend on the configuration alone, not on what is done already: rounding is the same in every run with
    this batch size.
    """
    together: dict[str, list[AttackSpec]] = {}
    for spec in specs:
        key = canonical(_common(spec)) if stackable(spec, subject) else f"alone: {spec.name}"
        together.setdefault(key, []).append(spec)
    most = max(1, batch_size // shard_size)
    made = [tuple(group[k : k + most]) for group in together.values() for k in range(0, len(group), most)]
    place = {spec.name: k for k, spec in enumerate(specs)}
    return sorted(made, key=lambda bundle: place[bundle[0].name])


def stackable(spec: AttackSpec, subject: Subject) -> bool:
    """Whether it is one run of PGD from a random start on an unrolled state that is solved image by image."""
    alike = spec.attack == "pgd" and spec.oracle == "unrolled" and spec.every_image and spec.survivors is None
    options = {"restarts": 1, "random_start": True, **spec.options}
    return alike and subject.solves_alone and options["restarts"] == 1 and bool(options["random_start"])


def _common(spec: AttackSpec) -> dict[str, object]:
    """What attacks that share batches must have in common: everything but their names and the options in `OWN`."""
    options = {name: value for name, value in spec.oracle_options.items() if name not in OWN}
    return {**spec.identity(), "diagnostics": spec.diagnostics, "group": spec.group, "oracle_options": options}


def attack_together(
    specs: Sequence[AttackSpec],
    which: Tensor,
    subject: Subject,
    seed: int,
    x: Tensor,
    y: Tensor,
    index: Tensor,
    watch: Watch | None = None,
) -> AttackResult:
    """Attack each image with its own attack: `which` holds, for each image, the number of its attack in `specs`.

    The specs are a group that shares batches, or a single attack.
    """
    first, oracle = build_attack(specs[0], seed), build_oracle(specs[0], subject)
    if len(specs) == 1:
        return first(oracle, x, y, every_image=specs[0].every_image, index=index, watch=watch)
    assert isinstance(first, PGD)
    assert isinstance(oracle, UnrolledState)
    own = [{name: spec.oracle_options[name] for name in OWN if name in spec.oracle_options} for spec in specs]
    default = {name: getattr(UnrolledState, name) for name in OWN}
    oracles = [replace(oracle, **{**default, **options}) for options in own]
    start, keys = torch.empty_like(x), keys_of(x, index)
    for number, spec in enumerate(specs):
        rows = (which == number).nonzero().flatten()
        if len(rows):
            mine = [keys[int(row)] for row in rows]
            start[rows] = random_starts(first.threat, x[rows], spec.seed(seed), first.kind, 0, mine)
    settings = {f.name: getattr(first, f.name) for f in fields(first)}
    stacked = StackedStates.of(oracles, which.to(x.device))
    return _Started(**settings, starts=start)(stacked, x, y, index=index, watch=watch)


@dataclass(frozen=True, kw_only=True)
class _Started(PGD):
    """PGD from given starts, which were drawn in the ball and need no check."""

    starts: Tensor
    """One start for each image of the batch."""

    @override
    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        return self.starts[task.places[rows]]
