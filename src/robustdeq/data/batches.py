"""Which images are in which batch: a function of the step alone, so that training resumes anywhere."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


def steps_per_epoch(n: int, batch_size: int) -> int:
    """Number of full batches in one pass over n images; the images that do not fill a batch are left out."""
    if n < 1 or batch_size < 1:
        raise ValueError(f"n and batch_size must be positive, got n={n}, batch_size={batch_size}")
    if n < batch_size:
        raise ValueError(f"{n} images do not fill one batch of {batch_size}: give a smaller --schedule.batch_size")
    return n // batch_size


def batch_at(n: int, batch_size: int, step: int, *, seed: int) -> Int64[Tensor, " b"]:
    """Indices of the images in the batch of one step, counted from 0 over all epochs, out of n images.

    The batches of an epoch are consecutive pieces of a permutation that (seed, epoch) determine.
    """
    epoch, i = divmod(step, steps_per_epoch(n, batch_size))
    if seed < 0 or step < 0:
        raise ValueError(f"seed and step must be >= 0, got seed={seed}, step={step}")
    # a copy: whoever changes it must not change the cached permutation
    return _permutation(n, seed, epoch)[i * batch_size : (i + 1) * batch_size].clone()


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Tensor:
    # SeedSequence mixes the two numbers, so that (0, 1) and (1, 0) have nothing in common
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    return torch.randperm(n, generator=torch.Generator().manual_seed(mixed))
