"""Code of a user's own, named as package.module:name: found, imported, and recognised by its source."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robustdeq.host.suggestions import did_you_mean

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REFERENCE = re.compile(rf"(?P<module>{_DOTTED}):(?P<name>{_DOTTED})")
_KNOWN_BY_VERSION = {*sys.stdlib_module_names, "robustdeq", "torch"}
"""Packages whose code belongs to an installed version and is not hashed."""


class ReferenceProblem(ValueError):  # the message is shown as it is
    """Code that a name stands for cannot be found or fails; the message is one line."""


def is_reference(text: object) -> bool:
    """Whether a name is of the form package.module:name."""
    return isinstance(text, str) and _REFERENCE.fullmatch(text) is not None


def module_of(reference: str) -> str:
    """The module that a reference names."""
    return reference.partition(":")[0]


def resolve(reference: str) -> Any:
    """What package.module:name stands for; modules of the current folder can be imported."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ReferenceProblem(f"{reference} does not name code: expected package.module:name")
    owner = import_module(match["module"], reference)
    for part in match["name"].split("."):
        if not hasattr(owner, part):
            hint = did_you_mean(part, dir(owner), "is it spelt as there?")
            raise ReferenceProblem(f"{reference}: {match['module']} has no {part}; {hint}")
        owner = getattr(owner, part)
    return owner


def import_module(module: str, reference: str | None = None) -> Any:
    """Import a module of the current folder or of an installed package; `reference` is what errors name."""
    where = f"; run the command where {module.split('.')[0]} lies, or install it"
    with current_folder_importable(), blaming(reference or module, f"cannot import {module}", where):
        importlib.invalidate_caches()  # the file may be younger than the last look into the folder
        return importlib.import_module(module)


def import_modules(names: str | None) -> list[str]:
    """Import the modules of --import, separated by commas; returns their names."""
    modules = [name.strip() for name in (names or "").split(",") if name.strip()]
    for module in modules:
        import_module(module)
    return modules


@contextmanager
def current_folder_importable(*, first: bool = True) -> Iterator[None]:
    """Modules of the current folder can be imported inside, before those of installed packages or after them."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError("the current folder has been deleted; change to one that exists") from None
    sys.path.insert(0 if first else len(sys.path), here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


@contextmanager
def blaming(name: str, what: str, hint: str = "", kind: type[Exception] = ReferenceProblem) -> Iterator[None]:
    """An error in a user's own code becomes one of this kind in one line; if an import failed, with a hint."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        after = hint if isinstance(error, ImportError) else ""
        raise kind(f"{name}: {what} ({type(error).__name__}{said and f': {said}'}){after}") from error


def reference_of(thing: Any) -> str:
    """package.module:name of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def is_foreign(thing: Any) -> bool:
    """Whether a class or function is defined outside robustdeq."""
    return str(thing.__module__).partition(".")[0] != "robustdeq"


def sources(reference: str) -> dict[str, str]:
    """The files that define a class with its base classes, or a function, each with 12 hex digits of its SHA-256.

    Files of robustdeq, torch and Python itself are left out. What has no file of its own then, such as a
    `functools.partial`, is known by the module that `reference` names.
    """
    thing = resolve(reference)
    parts = thing.__mro__ if isinstance(thing, type) else (thing,)
    return _digests(getattr(part, "__module__", "") for part in parts) or _digests([module_of(reference)])


def _digests(modules: Iterable[str]) -> dict[str, str]:
    found = {}
    for module in map(sys.modules.get, modules):
        if module is None or module.__name__.partition(".")[0] in _KNOWN_BY_VERSION:
            continue
        file = inspect.getsourcefile(module) if getattr(module, "__file__", None) else None
        if file is not None and Path(file).is_file():
            name = f"{module.__name__.replace('.', '/')}.py"
            found[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    return found
