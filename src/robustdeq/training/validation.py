"""Validation: clean and PGD accuracy of the model on held-out images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustdeq.attacks.ascent import climb, gradient_of
from robustdeq.models.modes import attacking
from robustdeq.threat import Threat, cross_entropy
from robustdeq.training.draws import Draws


def correct_counts(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float | None,
    seed: int,
    batch_size: int,
    first: int = 0,
) -> tuple[int, int]:
    """Count the images classified correctly: clean, and both clean and after PGD with the model's own gradient.

    The random start of image i depends on (seed, first + i) alone, not on batches or ranks.
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
            gradient = gradient_of(lambda z, _, labels=labels: cross_entropy(model(z), labels))  # type: ignore[misc]
            attacked = climb(gradient, start, images, threat, steps=steps, step_size=step_size)
            with torch.no_grad():
                fooled = model(attacked).argmax(1) != labels
            clean += int(right.sum())
            robust += int((right & ~fooled).sum())
    return clean, robust
