"""Values of a JSON file, checked against the annotations of the dataclass that they are for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_known: dict[Any, dict[str, Any]] = {}


def hints(record: type[Any]) -> dict[str, Any]:
    """The annotated type of each field of a dataclass."""
    if record not in _known:
        _known[record] = get_type_hints(record)
    return _known[record]


def read_record(record: type[Any], content: Any) -> Any:
    """A dataclass from the fields that a mapping has; fields that a later version added are ignored.

    Raises:
        TypeError: A value has another type than its annotation.
        KeyError: A field is missing.
    """
    if not isinstance(content, Mapping):
        raise TypeError(f"{record.__name__}: expected a mapping, got {content!r:.80}")
    names = [f.name for f in fields(record) if f.name in content]
    return record(**{name: checked(content[name], hints(record)[name], name) for name in names})


def checked(value: Any, hint: Any, name: str) -> Any:
    """The value, if it is of the annotated type: numbers, texts, lists and mappings; of others nothing is known."""
    if not _fits(value, hint):
        raise TypeError(f"{name}: {value!r:.80} is not {getattr(hint, '__name__', hint)}")
    return value


def _fits(value: Any, hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in inside)
    if origin is list:
        return isinstance(value, list) and all(_fits(part, inside[0]) for part in value)
    if origin in (dict, Mapping) or hint is dict:
        value_hint = inside[1] if inside else Any
        return isinstance(value, Mapping) and all(isinstance(k, str) and _fits(v, value_hint) for k, v in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return type(value) is int
    if hint in (str, bool, NoneType):
        return isinstance(value, hint)
    return True
