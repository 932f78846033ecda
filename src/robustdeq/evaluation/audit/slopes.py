"""Whether an oracle's gradient is there, and whether it is the slope of what the predictor does."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from robustdeq.attacks import Oracle
from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.threat import Threat, cross_entropy, margin

STEPS = (0.05, 0.25)
"""Steps along the gradient, as shares of eps."""
KEPT = 0.25
"""Share of the promised growth of the loss from which a promise counts as kept; curvature takes some of it."""
NOISE = 1e-5
"""Promised growth, relative to the largest logit, that rounding could hide."""


def vanishes(oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
    """Whether the gradient of the cross-entropy is zero or not finite in every pixel."""
    gradient = input_gradients(oracle, x, y, "ce")
    return ((gradient == 0) | ~gradient.isfinite()).flatten(1).all(1)


def input_gradients(oracle: Oracle, x: Tensor, y: Tensor, loss: Literal["ce", "margin"]) -> Tensor:
    """The gradient of each image's loss; zero where autograd finds none."""
    formula = {"ce": cross_entropy, "margin": margin}[loss]

    def gradient(rows: Tensor) -> Tensor:
        found = None
        with torch.enable_grad(), oracle.prepared():
            variable = x[rows].clone().requires_grad_()
            logits = oracle(variable)
            if logits.requires_grad:
                (found,) = torch.autograd.grad(formula(logits, y[rows]).sum(), variable, allow_unused=True)
        return torch.zeros_like(variable) if found is None else found

    return torch.cat(halving(gradient, torch.arange(len(x), device=x.device)))


def broken_promises(oracle: Oracle, x: Tensor, y: Tensor, gradients: Tensor, threat: Threat) -> Tensor:
    """Whether the margin grows by less than a share of what the gradient promises, at steps of either length."""
    broken = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not len(x):
        return broken
    with oracle.prepared():
        here = torch.cat(halving(oracle.deployed, x))
        before, noise = margin(here, y), NOISE * here.abs().amax(1)
        broken |= True
        for share in STEPS:
            moved = (x + share * threat.eps * threat.ascent(gradients)).clamp(0, 1)
            promised = (gradients * (moved - x)).flatten(1).sum(1)
            grown = margin(torch.cat(halving(oracle.deployed, moved)), y) - before
            broken &= (grown < KEPT * promised) & (promised > noise)
    return broken
