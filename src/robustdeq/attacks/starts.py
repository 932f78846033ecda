"""Random starting points, each a pure function of (seed, attack, run, image), whatever the rest of the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from robustdeq.threat import Threat


def keys_of(x: Tensor, index: Sequence[int] | Tensor | None) -> tuple[str, ...]:
    """A key for each image: its index in the data set if given, otherwise a hash of its pixels."""
    if index is None:
        pixels = x.detach().cpu().contiguous()
        return tuple(hashlib.sha256(image.view(torch.uint8).numpy().tobytes()).hexdigest() for image in pixels)
    return tuple(f"index {int(i)}" for i in index)


def generator_for(seed: int, kind: str, run: int, key: str) -> torch.Generator:
    """A generator on the CPU, so that every device gets the same numbers."""
    digest = hashlib.sha256(f"{seed}/{kind}/{run}/{key}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def random_starts(threat: Threat, x: Tensor, seed: int, kind: str, run: int, keys: Sequence[str]) -> Tensor:
    """A random point of each image's ball, with pixels in [0, 1]."""
    return torch.cat(
        [threat.random_start(x[i : i + 1], generator_for(seed, kind, run, key)) for i, key in enumerate(keys)]
    )
