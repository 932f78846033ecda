"""What is done to bytes and to values, by a seeded generator."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 10**12, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", " ", "no",
    "1e99999999", "8/0", "\x1b[2J", "../../x", "/", "a\nb", "\udcff", "ü", "x" * 5000, "=1+1", "<script>", "{}", "[",
    "__class__", "os:system",
    "\ue000", "\ue0007", "²", "٣", "9" * 5000, "1:30", "2020-01-01",
    [], [[]], [1, 2, 3], {}, {"type": "Broyden"}, {"type": ["x"]}, {"a": {"b": {"c": 1}}},
]  # fmt: skip


def value(rng: np.random.Generator) -> Any:
    """A value that nobody expects."""
    return copy.deepcopy(HOSTILE[int(rng.integers(len(HOSTILE)))])


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes with bits flipped, cut off, overwritten, repeated or exchanged."""
    size = len(content)
    place, length = int(rng.integers(size)), int(rng.integers(1, 40))
    match int(rng.integers(8)):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + rng.bytes(length) + content[place + length :]
        case 2:
            return content[:place] + content[place + length :]
        case 3:
            return content[:place] + content[place : place + length] + content[place:]
        case 4:
            return content[:place] + b"\0" * length + content[place + length :]
        case _:
            changed = bytearray(content)
            for bit in rng.integers(0, 8 * size, int(rng.integers(1, 4))):
                changed[bit // 8] ^= 1 << int(bit) % 8
            return bytes(changed)


def mutated(content: Any, rng: np.random.Generator) -> Any:
    """A copy of nested lists and mappings with one to three values exchanged, removed or added."""
    changed = json.loads(json.dumps(content))
    for _ in range(int(rng.integers(1, 4))):
        where = changed
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                break
            key = keys[int(rng.integers(len(keys)))]
            if isinstance(where[key], dict | list) and where[key] and rng.random() < 0.75:
                where = where[key]
                continue
            kind = rng.random()
            if kind < 0.2:
                del where[key]
            elif kind < 0.3 and isinstance(where, dict):
                where[f"{key}x"] = where.pop(key)
            else:
                where[key] = value(rng)
            break
    return changed


def as_json(content: Any) -> bytes:
    """JSON as Python writes it, also what JSON has not."""
    return json.dumps(content).encode()
