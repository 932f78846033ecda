"""Validation: clean and PGD accuracy of the deployed model on held-out images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustdeq.models.modes import attacking
from robustdeq.threat import Threat, cross_entropy
from robustdeq.training.draws import Draws
from robustdeq.training.objectives import climb


def correct_counts(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float,
    seed: int,
    batch_size: int,
    first: int = 0,
) -> tuple[int, int]:
    """How many images are classified correctly: clean, and both clean and after PGD with the model's own gradient.

    The start of image i depends on (seed, first + i), not on batches or ranks.
    """
    clean = robust = 0
    with attacking(model):
        for begin in range(0, len(x), batch_size):
            images, labels = x[begin : begin + batch_size], y[begin : begin + batch_size]
            with torch.no_grad():
                right = model(images).argmax(1) == labels
            offsets = [
                threat.random_offset(image[None].cpu(), Draws(seed, first + begin + k).generator("validation"))
                for k, image in enumerate(images)
            ]
            start = (images + torch.cat(offsets).to(images.device)).clamp(0, 1)
            attacked = climb(
                lambda z, _, labels=labels: cross_entropy(model(z), labels).sum(),  # type: ignore[misc]
                start,
                images,
                threat,
                steps,
                step_size,
            )
            with torch.no_grad():
                fooled = model(attacked).argmax(1) != labels
            clean += int(right.sum())
            robust += int((right & ~fooled).sum())
    return clean, robust
