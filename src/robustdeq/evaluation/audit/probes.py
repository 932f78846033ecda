"""Properties of a predictor that no attack shows: randomness, memory, dependence on batches and on gradients, cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robustdeq.attacks import Oracle
from robustdeq.attacks.task import fooled
from robustdeq.evaluation.audit.cost import arithmetic
from robustdeq.evaluation.audit.memory import twins
from robustdeq.evaluation.audit.slopes import broken_promises, input_gradients, vanishes
from robustdeq.evaluation.run.batch import predictions
from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.suites.opaque import Averaged, Opaque
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import Threat

PART = 100
"""Images that are probed together, at most."""
ROUNDING = 1e-3
"""Difference of two logits, relative to the largest of all images, that rounding may cause."""


@dataclass(frozen=True)
class Probes:
    """Measurements on all images (by earlier versions on the first 100).

    Audits by earlier versions have none of those that are None here.
    """

    images: int
    random: float
    """Share of images whose prediction differs between two passes, or whose logits do by more than rounding."""
    batch: float
    """Share of images whose prediction depends on the other images of the batch."""
    vanishing: float
    """Share of images on which the gradient of the loss is zero, or not finite, in every pixel."""
    cost: float
    """Arithmetic of a prediction, in evaluations of f; 1 without dynamics."""
    base_cost: float
    """Cost of the static base; that of the predictor without one."""
    gradient_mode: float | None = None
    """Share of images with another prediction, or other logits, while gradients are recorded."""
    drift: float | None = None
    """Share of clean images with another prediction than before the attacks."""
    sloped: int = 0
    """Number of images that have a gradient, and no randomness that would hide what a step does."""
    false_gradient: float | None = None
    """Share of these on which a small step along the gradient does not do what the gradient promises."""
    attacked_right: int | None = None
    """Number of attacked images that are right and become wrong when a few pixels are replaced."""
    attacked_wrong: int | None = None
    """Number of attacked images that are wrong and become right when a few pixels are replaced."""


@dataclass(frozen=True)
class Views:
    """What the attacker sees of the predictor in the probes."""

    usual: Oracle
    """The oracle of the audit's APGD."""
    exact: Oracle | None
    """The oracle that claims to show the predictor's own gradient; None for a defence that is smoothed for it."""


@torch.no_grad()
def probe(
    subject: Subject,
    views: Views,
    x: Tensor,
    y: Tensor,
    threat: Threat,
    before: Tensor | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Probes:
    """Probe a predictor on images; `before` are its predictions on them from before the attacks.

    `report` is called with the number of images that are probed.
    """
    parts = []
    for rows in torch.arange(len(x)).tensor_split(-(-len(x) // PART)):
        report(int(rows[0]))
        seen = None if before is None else before[rows]
        parts.append(_looked(subject, views, x[rows], y[rows], threat, seen))
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    slopes = found.get("slopes")
    base = subject if subject.undefended is None else Subject(subject.undefended)
    return Probes(
        images=len(x),
        random=_share(found["random"]),
        batch=_share(found["batch"]),
        vanishing=_share(found["vanishing"]),
        cost=arithmetic(subject, x[:1]),
        base_cost=arithmetic(base, x[:1]),
        gradient_mode=_share(found["gradient_mode"]),
        drift=_share(found["drift"]) if "drift" in found else None,
        sloped=0 if slopes is None else len(slopes),
        false_gradient=None if slopes is None or not len(slopes) else _share(slopes),
        attacked_right=int(found["right"].sum()),
        attacked_wrong=int(found["wrong"].sum()),
    )


def _looked(
    subject: Subject, views: Views, x: Tensor, y: Tensor, threat: Threat, before: Tensor | None
) -> dict[str, Tensor]:
    """What is found on each image, by the measurement's name; slopes only of the images that have one."""
    raw = Subject(subject.predictor.predictor) if isinstance(subject.predictor, Averaged) else subject
    with raw.prepared():
        first, second = _logits(raw, x), _logits(raw, x)
        alone = torch.cat([raw.predictor(image[None]) for image in x])
        graded = _with_gradients(raw, x)
    random = _differ(first, second)
    steady = ~random
    coupled = (predictions(first) != predictions(alone)) & steady
    found = {"random": random, "batch": coupled, "gradient_mode": _differ(first, graded) & steady}
    if before is not None:
        found["drift"] = (predictions(first) != before.to(x.device)) & steady & ~coupled
    if views.exact is not None:
        found["slopes"] = _slopes(views.exact, x[steady], y[steady], threat)
    with subject.prepared():
        attacked, twin = (fooled(logits, y) for logits in twins(subject, views.usual, x, y, threat))
    return {
        **found, "vanishing": vanishes(views.usual, x, y), "right": ~attacked & twin, "wrong": attacked & ~twin
    }  # fmt: skip


def _logits(subject: Subject, x: Tensor) -> Tensor:
    """Logits, in parts if the whole batch does not fit into memory."""
    return torch.cat(halving(subject.predictor, x))


def _with_gradients(subject: Subject, x: Tensor) -> Tensor:
    """Logits while gradients are recorded, as an attack calls the predictor."""

    def logits(part: Tensor) -> Tensor:
        with torch.enable_grad():
            return Opaque(subject.predictor).estimate(part.clone().requires_grad_()).detach()

    return torch.cat(halving(logits, x))


def _differ(a: Tensor, b: Tensor) -> Tensor:
    """Which images have another prediction, or logits that differ by more than rounding."""
    scale = ROUNDING * a.where(a.isfinite(), 0).abs().amax().clamp_min(1e-12)
    same = (a == b) | (a.isnan() & b.isnan())
    apart = (a - b).abs().where(~same, 0).nan_to_num(nan=torch.inf).amax(1)  # a NaN on one side alone is a difference
    return (predictions(a) != predictions(b)) | (apart > scale)


def _slopes(oracle: Oracle, x: Tensor, y: Tensor, threat: Threat) -> Tensor:
    """Whether the gradient breaks its promise, of the images that have one."""
    if not len(x):
        return torch.empty(0, dtype=torch.bool)
    gradients = input_gradients(oracle, x, y, "margin")
    sloped = (gradients != 0).flatten(1).any(1) & gradients.isfinite().flatten(1).all(1)
    return broken_promises(oracle, x[sloped], y[sloped], gradients[sloped], threat)


def _share(which: Tensor) -> float:
    return float(which.double().mean())
