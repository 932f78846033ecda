"""Validation: accuracy of the deployed model on held-out images: clean, under PGD, and under the inner attack."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from robustdeq.attacks.ascent import climb, gradient_of
from robustdeq.models.modes import attacking
from robustdeq.threat import Threat, cross_entropy
from robustdeq.training.draws import Draws
from robustdeq.training.objectives import Adversarial

TOLERATED_GAP = 0.02
"""Accuracy by which the inner attack may be weaker than PGD from cold starts before training warns."""


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


def correct_under_inner_attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    objective: Adversarial,
    draws: Draws,
    batch_size: int,
    first: int = 0,
) -> int:
    """How many images the deployed model classifies correctly, clean and after the objective's own inner attack.

    The start of image i depends on (seed, first + i), the depths of random states on the draws alone: batches and ranks
    do not matter.
    """
    correct = 0
    for begin in range(0, len(x), batch_size):
        images, labels = x[begin : begin + batch_size], y[begin : begin + batch_size]
        starts = [objective.start(image[None], Draws(draws.seed, first + begin + k)) for k, image in enumerate(images)]
        attacked = objective.perturb(model, images, labels, draws, start=torch.cat(starts))
        with attacking(model), torch.no_grad():
            right = [model(version).argmax(1) == labels for version in (images, attacked)]
        correct += int((right[0] & right[1]).sum())
    return correct


def weakness(inner: float, pgd: float, images: int) -> str | None:
    """Words of warning if the inner attack leaves a higher accuracy than PGD from cold starts by over two points.

    Over so few images that two points are less than four of them, it must be more than four: less is chance.
    """
    if round((inner - pgd) * images) <= max(TOLERATED_GAP * images, 4):
        return None
    return (
        f"the training's own attack leaves {inner:.1%} of the held-out images where PGD from cold starts leaves "
        f"{pgd:.1%}: it is too weak, and the model learns to hide from it (catastrophic overfitting, or dynamics that "
        "contract too little to be followed). Remedies: more objective.steps or objective.inner_iterations, a jacobian "
        "penalty, or objective.inner cold"
    )
