"""Whether a predictor knows the images: it may have met them before, or have looked them up while it was attacked."""

from __future__ import annotations

import torch
from torch import Tensor

from robustdeq.attacks import PGD, Oracle
from robustdeq.evaluation.audit.slopes import input_gradients
from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import Threat

REPLACED = 0.02
"""Share of pixels that are replaced: those that matter least to the loss, and enough to be another image."""


def twins(subject: Subject, oracle: Oracle, x: Tensor, y: Tensor, threat: Threat) -> tuple[Tensor, Tensor]:
    """Logits on the ends of PGD-10, and on the same images with a few pixels replaced, which were never shown before.

    A predictor that recognises the images it was tested on keeps its prediction on the first and loses it on the
    second. The attack follows gradients alone, so a predictor that answers from memory does not stop it.
    """
    step = threat.eps / 4 if threat.eps else None
    attack = PGD(threat, steps=10, step_size=step)
    attacked = torch.cat(halving(lambda rows: attack(oracle, x[rows], y[rows]).images, torch.arange(len(x))))
    twin = replaced(attacked, input_gradients(oracle, attacked, y, "margin"))
    with torch.no_grad():
        first, second = (torch.cat(halving(subject.predictor, images)) for images in (attacked, twin))
    return first, second


def replaced(x: Tensor, gradients: Tensor) -> Tensor:
    """The images with a few pixels, in all channels, moved to the farther end of [0, 1]: those of smallest effect."""
    pixels = x.flatten(2) if x.ndim > 2 else x[:, None]
    far = (pixels < 0.5).to(x.dtype)
    effect = ((far - pixels) * gradients.reshape(pixels.shape)).abs().sum(1)
    count = max(1, round(REPLACED * pixels.shape[-1]))
    chosen = torch.zeros_like(effect, dtype=torch.bool).scatter(1, effect.argsort(1)[:, :count], True)
    return torch.where(chosen[:, None], far, pixels).reshape(x.shape)
