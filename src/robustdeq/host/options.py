"""Options of a user's own class or function, checked against its signature; types as a person would say them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from robustdeq.host.suggestions import did_you_mean

KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    Path: "a path",
}
_FRACTION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)\s*")


def choices(hint: Any) -> list[str]:
    """The values of a Literal type."""
    return [str(choice) for choice in get_args(hint)] if get_origin(hint) is Literal else []


def expected(hint: Any) -> str:
    """A type in words."""
    if known := choices(hint):
        return f"one of {', '.join(known)}" if len(known) > 1 else known[0]
    if get_origin(hint) in (None, dict, list):
        kind = get_origin(hint) or hint
        return KINDS.get(kind, getattr(kind, "__name__", str(kind)))
    return " or ".join(expected(part) for part in get_args(hint) if part is not NoneType)


def checked_options(
    name: str, factory: Callable[..., Any], options: Mapping[str, Any], given: tuple[str, ...]
) -> dict[str, Any]:
    """The options as a class or function types them; one that it does not have, or of another type, is an error.

    Args:
        name: What the error calls it.
        factory: The class or function.
        options: Values as they come from YAML, or as text from a command line; a number may be written 8/255.
        given: Parameters that are no options.
    """
    from jsonargparse import ArgumentError, ArgumentParser  # not needed until code of a user's own is named

    parser = ArgumentParser(exit_on_error=False)
    add = parser.add_class_arguments if isinstance(factory, type) else parser.add_function_arguments
    add(factory, skip=set(given), fail_untyped=False)
    hints = {action.dest: getattr(action, "_typehint", None) for action in parser._actions if action.dest != "help"}
    for option in options:
        if option.partition(".")[0] not in hints:
            hint = did_you_mean(option, hints, quoted=True) if hints else "it has none"
            if option in getattr(factory, "__annotations__", {}):
                hint = "the class declares it: @dataclass(frozen=True, kw_only=True) is missing above the class"
            raise ValueError(f"{name} has no option {option!r}; {hint}")
    values = {option: _fraction(value, hints.get(option)) for option, value in options.items()}
    try:
        parsed: dict[str, Any] = parser.parse_object(values, defaults=False).as_dict()
    except ArgumentError as error:
        text = " ".join(str(error).split())
        if found := re.search(r'Parser key "(?P<option>[\w.]+)".*Got value: (?P<value>.*)', text):
            what = expected(hints[found["option"]])
            raise ValueError(f"{name}: {found['option']}: expected {what}, got {found['value']}") from None
        if found := re.search(r"arguments are required: (?P<missing>.*)", text):
            raise ValueError(f"{name} needs the option {found['missing']}") from None
        raise ValueError(f"{name}: {text}") from None
    return parsed


def _fraction(value: Any, hint: Any) -> Any:
    """A number that is written as a fraction, where a number is expected."""
    match = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if match is None or float not in (hint, *get_args(hint)) or not float(match[2]):
        return value
    return float(match[1]) / float(match[2])
