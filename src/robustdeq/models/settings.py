"""Solvers and gradient policies as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import robustdeq.solve as solve
from robustdeq.host.references import is_reference, module_of, reference_of, resolve

_SOLVERS = ("Broyden", "Anderson", "Picard")
_POLICIES = ("Phantom", "Implicit", "Neumann", "OneStep", "ThroughSolver", "SharedInverse")
_KINDS: dict[str, type] = {name: getattr(solve, name) for name in (*_SOLVERS, *_POLICIES)}


def encode(value: Any, *, own: bool = False) -> Any:
    """The value as JSON; a solver or gradient policy becomes {"type": name, option: value, ...}.

    With `own`, a user's own solver or policy is named as package.module:name; otherwise it is a TypeError.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        name = kind.__name__
        if _KINDS.get(name) is not kind:
            if not (own and isinstance(value, solve.Solver | solve.GradientPolicy)):
                raise TypeError(f"{name} cannot be stored in a checkpoint: only {', '.join(_KINDS)} can")
            name = reference_of(kind)
            if kind.__module__ == "__main__" or not is_reference(name):
                raise TypeError(
                    f"{kind.__name__} cannot be stored in a checkpoint: {name} cannot be imported again; "
                    "define it at the top of a module"
                )
        options = {f.name: getattr(value, f.name) for f in fields(value)}
        return {
            "type": name,
            **{k: encode(v, own=own) for k, v in options.items() if v is not None and not callable(v)},
        }
    return value


def decode(value: Any) -> Any:
    """The inverse of `encode`; imports the modules in `modules_in(value)`."""
    if isinstance(value, dict) and "type" in value:
        options = {k: decode(v) for k, v in value.items() if k != "type"}
        kind = _KINDS.get(value["type"])
        if kind is None and is_reference(value["type"]):
            kind = resolve(value["type"])
            if not (isinstance(kind, type) and issubclass(kind, solve.Solver | solve.GradientPolicy)):
                raise ValueError(f"{value['type']} is neither a solver nor a gradient policy")
        if kind is None:
            raise ValueError(f"unknown component {value['type']!r}; known are {', '.join(_KINDS)}")
        return kind(**options)
    return value


def modules_in(value: Any) -> set[str]:
    """The modules that `decode` would import."""
    if not isinstance(value, dict):
        return set()
    own = {module_of(value["type"])} if is_reference(value.get("type")) else set()
    return own.union(*(modules_in(part) for part in value.values()))
