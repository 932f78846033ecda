"""Validation: accuracy of the deployed model on held-out images: clean, under PGD, and under the inner attack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from robustdeq.attacks.ascent import climb, gradient_of
from robustdeq.models.modes import attacking
from robustdeq.threat import Linf, Threat, cross_entropy, number
from robustdeq.training.config import TrainConfig
from robustdeq.training.draws import Draws
from robustdeq.training.inner import Loss
from robustdeq.training.objectives import PGDAT, Adversarial, Objective

TOLERATED_GAP = 0.02
"""Accuracy by which the inner attack may be weaker than PGD from cold starts before training warns."""

Attack = Callable[[Tensor, Tensor, int], Tensor]
"""(images, labels, index of the first image) -> attacked images; batches and ranks do not matter."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Accuracies on the held-out images, as shares of them."""

    step: int
    """Number of steps taken."""
    clean: float
    pgd: float
    inner: float | None = None
    """Under the training's own inner attack, if it has one."""
    standard: float | None = None
    """Under PGD up the loss of the inner attack, where that is not the cross-entropy that `pgd` climbs."""


def validation_attacks(config: TrainConfig, model: nn.Module, objective: Objective, step: int) -> dict[str, Attack]:
    """The attacks of a validation, by the fields of `Validation` that hold what they leave."""
    adversarial = objective if isinstance(objective, Adversarial) else None
    threat = Linf(number(config.objective.eps)) if adversarial is None else adversarial.threat
    settings = config.validation
    step_size = None if settings.step_size is None else number(settings.step_size)
    pgd = partial(pgd_attack, model, threat, steps=settings.steps, step_size=step_size, seed=config.seed)
    if adversarial is None:
        return {"pgd": pgd()}
    draws = Draws(config.seed, step)
    attacks = {"pgd": pgd(), "inner": inner_attack(model, adversarial, draws)}
    if not isinstance(adversarial, PGDAT):
        attacks["standard"] = pgd(climbed=partial(adversarial.climbed, model, draws=draws))
    return attacks


def correct_counts(
    model: nn.Module, x: Tensor, y: Tensor, attacks: Sequence[Attack], *, batch_size: int, first: int = 0
) -> list[int]:
    """Count the images classified correctly: clean, then for each attack those that are so before and after it.

    Image i is given to the attacks as number first + i.
    """
    counts = torch.zeros(1 + len(attacks), dtype=torch.int64, device=x.device)
    for begin in range(0, len(x), batch_size):
        images, labels = x[begin : begin + batch_size], y[begin : begin + batch_size]
        versions = [images, *(attack(images, labels, first + begin) for attack in attacks)]
        with attacking(model), torch.no_grad():
            right = torch.stack([model(version).argmax(1) == labels for version in versions])
        counts += (right & right[0]).sum(1)
    return counts.tolist()


def pgd_attack(
    model: nn.Module,
    threat: Threat,
    *,
    steps: int,
    step_size: float | None,
    seed: int,
    climbed: Callable[[Tensor, Tensor], Loss] | None = None,
) -> Attack:
    """PGD with the model's own gradient, from a random start that depends on the seed and the image's index alone.

    It climbs the cross-entropy, or the loss that `climbed` gives for images and labels.
    """

    def attack(images: Tensor, labels: Tensor, first: int) -> Tensor:
        offsets = [
            threat.random_offset(image[None].cpu(), Draws(seed, first + k).generator("validation"))
            for k, image in enumerate(images)
        ]
        start = (images + torch.cat(offsets).to(images.device)).clamp(0, 1)
        with attacking(model):
            loss: Loss = (lambda z, _: cross_entropy(z, labels)) if climbed is None else climbed(images, labels)
            gradient = gradient_of(lambda x, step: loss(model(x), step))
            return climb(gradient, start, images, threat, steps=steps, step_size=step_size)

    return attack


def inner_attack(model: nn.Module, objective: Adversarial, draws: Draws) -> Attack:
    """The objective's own inner attack; starts depend on the image's index, depths of random states on the draws."""

    def attack(images: Tensor, labels: Tensor, first: int) -> Tensor:
        starts = [objective.start(image[None], Draws(draws.seed, first + k)) for k, image in enumerate(images)]
        return objective.search(model, images, labels, draws, torch.cat(starts)).images

    return attack


def weakness(inner: float, pgd: float, images: int, *, carried: bool) -> str | None:
    """Words of warning if the inner attack leaves a higher accuracy than PGD from cold starts by over two points.

    Both climb the same loss: the KL divergence of TRADES breaks far fewer images than the cross-entropy does, however
    it is climbed, which says nothing of the inner attack. Over so few images that two points are less than four of
    them, it must be more than four: less is chance.
    """
    if round((inner - pgd) * images) <= max(TOLERATED_GAP * images, 4):
        return None
    return (
        f"the training's own attack leaves {inner:.1%} of the held-out images where PGD from cold starts up the same "
        f"loss leaves {pgd:.1%}: it is too weak, and the model learns to hide from it (catastrophic overfitting, or "
        "dynamics that contract too little to be followed). Remedies: more objective.steps, a jacobian penalty"
        + (", more objective.inner_iterations, or objective.inner cold" if carried else "")
    )
