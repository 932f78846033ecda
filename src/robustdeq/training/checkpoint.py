"""The state from which a training run resumes, in one file that is replaced atomically."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch

from robustdeq.data import Dataset
from robustdeq.host.differences import differences
from robustdeq.host.files import read_regular, write_atomically
from robustdeq.host.seals import comment_holds, with_comment
from robustdeq.training.config import TrainConfig

STATE = "state.pt"
RUN = "run.json"
AFRESH = "copy it again, or move it away to start this run afresh; the weights in best and last stay usable"


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Everything that a step depends on besides the configuration; random draws depend on the step alone."""

    step: int
    """Number of steps taken."""
    model: dict[str, Any]
    optimizer: dict[str, Any]
    average: dict[str, Any] | None
    """State of the averaged model, if weights are averaged."""
    best: float
    """Best validation PGD accuracy so far."""
    validation: tuple[float, float] | None = None
    """Accuracies of the last validation, clean and under PGD."""
    inner: float | None = None
    """Accuracy of the last validation under the training's own inner attack."""
    standard: float | None = None
    """Accuracy of the last validation under PGD up the inner attack's loss, where that is not the cross-entropy."""
    validated_at: int | None = None
    """Number of steps taken at the last validation."""
    config: dict[str, Any]
    """Configuration of the run, as JSON."""
    data: str | None = None
    """Digest of the training and held-out images."""


def save_state(folder: Path, state: TrainingState) -> None:
    """Replace the state file; a kill or a full disk leaves the old one in place."""
    buffer = io.BytesIO()
    torch.save(vars(state), buffer)
    write_atomically(folder / STATE, with_comment(buffer.getvalue()))


def load_state(folder: Path) -> TrainingState | None:
    """The state to resume from, or None if there is none yet; loading it executes no code from the file.

    Nothing is read from a file whose checksum does not fit. States of earlier versions carry none and are resumed.
    """
    path = folder / STATE
    if not path.exists():
        return None
    content = read_regular(path)
    if not comment_holds(content):
        raise ValueError(f"{path} is damaged (its checksum does not fit its content); {AFRESH}")
    try:
        state = TrainingState(**torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
        if type(state.step) is not int or state.step < 0 or not isinstance(state.config, dict):
            raise ValueError(f"step {state.step!r} of a configuration that is {type(state.config).__name__}")
    except Exception as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {said}); {AFRESH}") from error
    return state


FREE = ("description", "checkpoint_every", "on_nonfinite", "schedule.max_steps")
"""Fields that may change when a run is resumed: they do not change what a step computes."""


def completed(stored: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, with the defaults of fields that did not exist yet: these describe what was done."""
    return {
        **stored,
        **{
            key: completed(stored[key], value) if isinstance(value, dict) and key in stored else stored.get(key, value)
            for key, value in defaults.items()
        },
    }


def check_same_run(folder: Path, state: TrainingState, config: dict[str, Any], data: Dataset, digest: str) -> None:
    """Refuse to resume with another configuration (as JSON) or on other images."""
    stored = completed(state.config, as_json(TrainConfig()))
    lines = differences(stored, config, where="the run", free=FREE)
    if lines:
        raise ValueError(
            f"{folder} holds a run with another configuration; give another --out, or the same options:\n  "
            + "\n  ".join(lines)
        )
    if state.data not in (None, digest):
        raise ValueError(
            f"{folder} holds a run on other images than those found now ({config['data']['name']}, "
            f"{len(data.train)} for training, {len(data.validation)} held out); "
            "give the data it began with, or another --out"
        )


def as_json(config: TrainConfig) -> dict[str, Any]:
    """A configuration as JSON, as it is stored."""
    return cast("dict[str, Any]", json.loads(json.dumps(asdict(config))))


def _begun(path: Path) -> dict[str, Any]:
    """What run.json says so far; an error names a file that is damaged."""
    try:
        begun = json.loads(read_regular(path)) if path.exists() else {}
        if not isinstance(begun, dict) or not all(isinstance(e["step"], int) for e in begun.get("resumed", [])):
            raise ValueError("it is not what a run writes")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): copy it again, or move it away") from None
    return begun


def record_start(folder: Path, config: dict[str, Any], made_with: dict[str, Any], resumed_at: int | None) -> None:
    """Record the versions and hardware that a run starts with, and at every resumption the step and those used then."""
    path = folder / RUN
    run: dict[str, Any] = {"config": config, **made_with, "resumed": []}
    if resumed_at is not None:
        begun = _begun(path)
        # earlier resumptions at this step or later were lost: their steps are computed again
        earlier = [entry for entry in begun.get("resumed", []) if entry["step"] < resumed_at]
        run = {**run, **begun, "config": config, "resumed": [*earlier, {"step": resumed_at, **made_with}]}
    write_atomically(path, json.dumps(run, indent=2).encode())
