"""Splits into training and held-out images."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor


def check_held_out(held_out: int, available: int) -> None:
    """Raises unless `held_out` of the available training images can be held out."""
    if not 0 <= held_out < available:
        raise ValueError(
            f"held_out must lie in 0..{available - 1}: there are {available} training images, got {held_out}"
        )


def stratified_split(
    labels: Int64[Tensor, " N"], count: int, *, seed: int
) -> tuple[Int64[Tensor, " kept"], Int64[Tensor, " chosen"]]:
    """Indices that are kept and `count` indices that are held out, both ascending; each class gives the same share.

    A pure function of its arguments. Shares are rounded by largest remainder, so that they sum to `count`.
    """
    total = len(labels)
    check_held_out(count, total)
    sizes = torch.bincount(labels).tolist()
    shares = [count * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda k: -(count * sizes[k] % total))
    for k in by_remainder[: count - sum(shares)]:
        shares[k] += 1
    for k, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        if size and share == size:
            raise ValueError(
                f"holding out {count} of {total} images would take all {size} of class {k}: hold out fewer"
            )
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    taken = torch.zeros(total, dtype=torch.bool)
    for k, share in enumerate(shares):
        taken[order[labels[order] == k][:share]] = True
    return (~taken).nonzero().flatten(), taken.nonzero().flatten()
