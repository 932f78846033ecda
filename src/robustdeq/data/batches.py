"""Which images are in which batch: a pure function, so that training can go on from any step, on any process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


def steps_per_epoch(n: int, batch_size: int, *, drop_last: bool = True) -> int:
    """Batches in one pass over n images; without `drop_last` the remainder is a smaller one."""
    if n < 1 or batch_size < 1:
        raise ValueError(f"n and batch_size must be positive, got n={n}, batch_size={batch_size}")
    steps = n // batch_size if drop_last else -(-n // batch_size)
    if not steps:
        raise ValueError(f"{n} images do not fill one batch of {batch_size}: use a smaller batch_size")
    return steps


def epoch_batches(
    n: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = True,
) -> Iterator[Int64[Tensor, " b"]]:
    """The indices of every batch of one epoch: consecutive pieces of a permutation that (seed, epoch) determine.

    Process `rank` gets its contiguous share of each batch: joined in the order of the ranks, the shares are the batch
    of a single process.

    Args:
        n: Images.
        batch_size: Of all processes together.
        seed: Together with the epoch determines the permutation.
        epoch: From 0.
        rank: This process.
        world_size: Processes.
        drop_last: Leave out the images that do not fill a batch. If they are kept, the shares of the last batch may
            differ by one, and be empty.
    """
    steps = steps_per_epoch(n, batch_size, drop_last=drop_last)
    _check(batch_size, seed, epoch, rank, world_size)
    return (_share(n, batch_size, i, seed, epoch, rank, world_size) for i in range(steps))


def batch_at(
    n: int,
    batch_size: int,
    step: int,
    *,
    seed: int,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = True,
) -> Int64[Tensor, " b"]:
    """The indices of the batch of a step counted from 0 over all epochs; the arguments are those of `epoch_batches`."""
    epoch, i = divmod(step, steps_per_epoch(n, batch_size, drop_last=drop_last))
    _check(batch_size, seed, epoch, rank, world_size)
    return _share(n, batch_size, i, seed, epoch, rank, world_size)


def _check(batch_size: int, seed: int, epoch: int, rank: int, world_size: int) -> None:
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed, epoch and step must be >= 0, got seed={seed}, epoch={epoch}")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must lie in 0..{world_size - 1} with world_size={world_size}, got {rank}")
    if batch_size % world_size:
        raise ValueError(
            f"a batch of {batch_size} images cannot be shared equally by {world_size} processes: "
            f"batch_size must be a multiple of {world_size}"
        )


def _share(n: int, batch_size: int, i: int, seed: int, epoch: int, rank: int, world_size: int) -> Tensor:
    batch = _permutation(n, seed, epoch)[i * batch_size : (i + 1) * batch_size]
    size = len(batch)
    # a copy: whoever changes it must not change the cached permutation
    return batch[size * rank // world_size : size * (rank + 1) // world_size].clone()


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Tensor:
    # SeedSequence mixes the two numbers, so that (0, 1) and (1, 0) have nothing in common
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    return torch.randperm(n, generator=torch.Generator().manual_seed(mixed))
