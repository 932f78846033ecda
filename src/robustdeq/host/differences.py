"""What keeps a job from resuming: the entries in which two configurations differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def differences(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], *, where: str, free: Sequence[str] = (), prefix: str = ""
) -> list[str]:
    """One line for each entry in which two nested JSON objects differ; an entry that is missing counts as None.

    `where` says in the message what holds the stored object, such as "the store". Entries whose dotted names are `free`
    may differ. The names begin with `prefix`, such as "attacks.pgd.".
    """
    lines = []
    for key in sorted(stored.keys() | wanted.keys()):
        name, old, new = f"{prefix}{key}", stored.get(key), wanted.get(key)
        if name in free:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            lines += differences(old, new, where=where, free=free, prefix=f"{name}.")
        elif old != new:
            lines.append(f"{name}: {old!r} in {where}, {new!r} asked for")
    return lines
