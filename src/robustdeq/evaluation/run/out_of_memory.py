"""Batches that do not fit into memory are halved and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

R = TypeVar("R")


def halving(run: Callable[[Tensor], R], batch: Tensor) -> list[R]:
    """run(batch), or, if it does not fit into memory, the results of run on parts that do, in order."""
    try:
        return [run(batch)]
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        if len(batch) == 1:
            raise RuntimeError(f"there is not enough memory for a single image: {error}") from error
    if torch.cuda.is_available():  # pragma: no cover
        torch.cuda.empty_cache()
    half = len(batch) // 2
    return [*halving(run, batch[:half]), *halving(run, batch[half:])]


def out_of_memory(error: RuntimeError) -> bool:
    """Whether the error means that memory ran out: devices raise their own type, the CPU allocator a message."""
    words = ("not enough memory", "DefaultCPUAllocator", "out of memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)
