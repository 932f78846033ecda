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
        raise ValueError(f"{n} images do not fill one batch of {batch_size}: use a smaller batch_size")
    return n // batch_size


def batch_at(
    n: int, batch_size: int, step: int, *, seed: int, rank: int = 0, world_size: int = 1
) -> Int64[Tensor, " b"]:
    """Indices of the images in the batch of one step, or of this process's share of them.

    The batches of an epoch are consecutive pieces of a permutation that (seed, epoch) determine. Each process gets a
    contiguous share of every batch; in the order of the ranks, the shares make up the batch of a single process.

    Args:
        n: Number of images.
        batch_size: Images per step over all processes.
        step: Step, counted from 0 over all epochs.
        seed: Seed of the permutations.
        rank: Rank of this process.
        world_size: Number of processes.
    """
    epoch, i = divmod(step, steps_per_epoch(n, batch_size))
    if seed < 0 or step < 0:
        raise ValueError(f"seed and step must be >= 0, got seed={seed}, step={step}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must lie in 0..{world_size - 1} with world_size={world_size}, got {rank}")
    if batch_size % world_size:
        raise ValueError(
            f"a batch of {batch_size} images cannot be shared equally by {world_size} processes: "
            f"batch_size must be a multiple of {world_size}"
        )
    share = batch_size // world_size
    first = i * batch_size + rank * share
    # a copy: whoever changes it must not change the cached permutation
    return _permutation(n, seed, epoch)[first : first + share].clone()


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Tensor:
    # SeedSequence mixes the two numbers, so that (0, 1) and (1, 0) have nothing in common
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    return torch.randperm(n, generator=torch.Generator().manual_seed(mixed))
