"""Handwritten digits of 8x8 pixels, which come with scikit-learn: small enough to try everything on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from robustdeq.data.images import Images, Splits
from robustdeq.data.split import stratified_split

TEST_IMAGES = 397
"""Of 1,797 images; 1,400 are left for training and validation."""
SEED = 0


def load_digits(root: str | Path | None = None, *, held_out: int = 200) -> Splits:
    """1,200 training, 200 validation (`held_out`) and 397 test images, split by class and always in the same way.

    `root` is not used: the images come with scikit-learn.
    """
    from sklearn.datasets import load_digits as embedded  # slow to import, and not needed for other data

    digits = embedded()
    pixels = torch.from_numpy(np.rint(digits.images * (255 / 16)).astype(np.uint8))[:, None]  # stored as 0..16
    everything = Images(
        pixels=pixels,
        labels=torch.from_numpy(digits.target.astype(np.int64)),
        classes=tuple(map(str, digits.target_names)),
    )
    pool, test = stratified_split(everything.labels, TEST_IMAGES, seed=SEED)
    train, validation = stratified_split(everything.labels[pool], held_out, seed=SEED + 1)
    return everything.subset(pool[train]), everything.subset(pool[validation]), everything.subset(test)
