"""Records of `robustdeq bench train` and `bench defence`, from which Tables 9 and 10 are made."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_DEFENDED = re.compile(r"defended T_f=(?P<every>\d+) R=(?P<steps>\d+)(?P<grid>, grid)?")
FIELDS = {"name", "model", "ours", "plain", "speedup"}
"""What every record has."""
_OTHERS = ("manifest.json", "run.json", "audit.json", "config.json")
"""Files of stores, trainings and checkpoints, which are no records."""


@dataclass(frozen=True)
class Timing:
    """One record: a speed, and what was measured."""

    model: str
    batch: int
    speed: float
    """Images per second."""
    machine: str
    commit: str


@dataclass(frozen=True)
class TrainingSpeed(Timing):
    """A whole step of adversarial training."""

    objective: str
    """pgdat or trades."""
    random: bool
    how: str
    """The inner attack, such as "cold" or "carried, J = 1", a shorter unrolling, and whether the step was compiled."""


@dataclass(frozen=True)
class PredictionSpeed(Timing):
    """A prediction behind an entropy reduction; R = 0 is the undefended one."""

    every: int
    steps: int
    grid: bool
    """False for the row of the main setting, which is measured longer than that of the grid."""


@dataclass(frozen=True)
class Benchmark:
    """The records of one file."""

    label: str
    records: tuple[Mapping[str, Any], ...]

    @cached_property
    def trainings(self) -> list[TrainingSpeed]:
        """The records of `bench train`."""
        return [found for record in self.records if (found := _training(record)) is not None]

    @cached_property
    def predictions(self) -> list[PredictionSpeed]:
        """The records of `bench defence`."""
        return [found for record in self.records if (found := _prediction(record)) is not None]


def read_benchmark(path: Path, label: str) -> Benchmark | None:
    """The records of a file; None if it holds something else.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds records with values that no `robustdeq bench` writes.
    """
    if path.name in _OTHERS or not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, list) or not any(map(_is_like_a_record, content)):
        return None
    found = Benchmark(label, tuple(content))
    try:
        _check_fields(content)
        _ = found.trainings, found.predictions
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}): run robustdeq bench --json again, or leave it out"
        ) from None
    return found


def holds_json(path: Path) -> bool:
    """Whether a file can be read as JSON."""
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


def _is_like_a_record(content: Any) -> bool:
    """Whether it has most of a record's fields, so that a record that has lost one is not taken for something else."""
    return isinstance(content, dict) and 2 * len(FIELDS & content.keys()) > len(FIELDS)


def _check_fields(content: list[Any]) -> None:
    for k, record in enumerate(content):
        if lost := sorted(FIELDS - set(record)):
            raise ValueError(f"record {k + 1} has no {' and no '.join(lost)}")


def _timing(record: Mapping[str, Any]) -> dict[str, Any]:
    environment, speed = record.get("environment", {}), float(record["samples_per_second"])
    if not 0 < speed < math.inf:
        raise ValueError(f"samples_per_second is {speed}")
    return {
        "model": str(record["model"]),
        "batch": int(record.get("batch", 0)),
        "speed": speed,
        "machine": str(environment.get("hardware", {}).get("machine", "unknown")),
        "commit": str(environment.get("commit") or "unknown"),
    }


def _training(record: Mapping[str, Any]) -> TrainingSpeed | None:
    """A record of `bench train`; the first ones say what was trained in their name alone."""
    what, *extras = str(record["name"]).split(", ")
    kind, _, random = what.partition(" + ")
    objective = str(record.get("objective", kind))
    if objective not in ("pgdat", "trades") or "samples_per_second" not in record:
        return None
    carried = [f"carried, {words.removeprefix('carried ')}" for words in extras if words.startswith("carried")]
    inner, others = carried or ["cold"], [words for words in extras if not words.startswith("carried")]
    if record.get("inner") == "carried":
        inner = [f"carried, J = {record['iterations']}"]
    states = record.get("states", "random" if random else "final")
    how = ", ".join([*inner, *others]).replace("J=", "J = ")
    return TrainingSpeed(**_timing(record), objective=objective, random=states == "random", how=how)


def _prediction(record: Mapping[str, Any]) -> PredictionSpeed | None:
    """A record of `bench defence`; the first ones say T_f and R in their name alone."""
    named = _DEFENDED.fullmatch(str(record["name"]))
    if named is None or "samples_per_second" not in record:
        return None
    every, steps = (int(record.get(name, named[name])) for name in ("every", "steps"))
    return PredictionSpeed(**_timing(record), every=every, steps=steps, grid=bool(record.get("grid", named["grid"])))
