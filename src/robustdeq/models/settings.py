"""Solvers and gradient policies as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import robustdeq.solve as solve

_SOLVERS = ("Broyden", "Anderson", "Picard")
_POLICIES = ("Phantom", "Implicit", "Neumann", "OneStep", "ThroughSolver", "SharedInverse")
_KINDS: dict[str, type] = {name: getattr(solve, name) for name in (*_SOLVERS, *_POLICIES)}


def encode(value: Any) -> Any:
    """The value as JSON; a solver or gradient policy becomes {"type": name, option: value, ...}."""
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        if _KINDS.get(name) is not type(value):
            raise TypeError(f"{name} cannot be stored in a checkpoint: only {', '.join(_KINDS)} can")
        options = {f.name: getattr(value, f.name) for f in fields(value)}
        return {"type": name, **{k: encode(v) for k, v in options.items() if v is not None and not callable(v)}}
    return value


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, dict) and "type" in value:
        options = {k: decode(v) for k, v in value.items() if k != "type"}
        kind = _KINDS.get(value["type"])
        if kind is None:
            raise ValueError(f"unknown component {value['type']!r}; known are {', '.join(_KINDS)}")
        return kind(**options)
    return value
