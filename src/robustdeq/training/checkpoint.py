"""What a training run needs to go on, in one file that is replaced atomically."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from robustdeq.files import write_atomically

STATE = "state.pt"

"""A kill leaves the old file, and so does a full disk, which is said."""


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """Everything a step depends on besides the configuration; what is drawn depends on the step alone."""

    step: int
    """Steps taken."""
    model: dict[str, Any]
    optimizer: dict[str, Any]
    average: dict[str, Any] | None
    """The moving average of the weights, if there is one."""
    best: float
    """Best validation PGD accuracy so far."""
    validation: tuple[float, float] | None = None
    """The last validation's accuracy, clean and under PGD."""
    validated_at: int | None = None
    """The step of that validation."""
    config: dict[str, Any]
    """The configuration it belongs to."""
    data: str | None = None
    """The training images' digest."""


def save_state(folder: Path, state: TrainingState) -> None:
    """Replace the state file; a kill or a full disk leaves the old one."""
    buffer = io.BytesIO()
    torch.save(vars(state), buffer)
    write_atomically(folder / STATE, buffer.getvalue())


def load_state(folder: Path) -> TrainingState | None:
    """The state to go on from, or None if the run has not got that far; nothing in the file is executed."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        return TrainingState(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}); move it away to start this run anew"
        ) from error


FREE = ("description", "checkpoint_every", "on_nonfinite", "schedule.max_steps")
"""Fields that may change when a run goes on: they do not change what a step computes."""


def difference(stored: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> list[str]:
    """The entries in which two configurations differ, one line each; a field the stored one does not know is new."""
    lines = []
    for key in sorted(stored.keys() | wanted.keys()):
        a, b = stored.get(key, wanted.get(key)), wanted.get(key)
        if f"{prefix}{key}" in FREE:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            lines += difference(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {a!r} in the run, {b!r} asked for")
    return lines
