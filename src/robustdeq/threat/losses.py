"""Losses of attacks and training objectives, one value per image; larger is worse for the classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

DLR_OFFSET = 1e-12
"""Added to the denominators of the DLR losses, which are zero where the leading logits are equal."""


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy -log p_y of each image."""
    return F.cross_entropy(_precise(logits), y, reduction="none")


def kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)), summed over classes."""
    log_p = _precise(reference).log_softmax(-1)
    return (log_p.exp() * (log_p - _precise(logits).log_softmax(-1))).sum(-1)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """max_{i != y} z_i - z_y: positive where the classifier is wrong."""
    z = _precise(logits)
    _require_classes("margin", z, 2)
    return _best_wrong(z, y) - _of(z, y)


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """The margin divided by z_pi1 - z_pi3, with pi the descending order (Croce & Hein 2020, Eq. 6).

    It is invariant to shifting and scaling the logits.
    """
    z = _precise(logits)
    _require_classes("dlr", z, 3)
    ordered = z.sort(dim=-1).values
    return (_best_wrong(z, y) - _of(z, y)) / (ordered[:, -1] - ordered[:, -3] + DLR_OFFSET)


def dlr_targeted(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """(z_target - z_y) / (z_pi1 - (z_pi3 + z_pi4) / 2) (Croce & Hein 2020, Eq. 7)."""
    z = _precise(logits)
    _require_classes("dlr_targeted", z, 4)
    ordered = z.sort(dim=-1).values
    return (_of(z, target) - _of(z, y)) / (ordered[:, -1] - 0.5 * (ordered[:, -3] + ordered[:, -4]) + DLR_OFFSET)


def confident(log_p: Tensor, y: Tensor) -> Tensor:
    """max_{i != y} log p_i, for an oracle that shows log-probabilities averaged over states.

    It attacks a defence that lowers the entropy: such a defence confirms a prediction that is already confident, even a
    wrong one. The values are not normalised again, which would hide that states disagree.
    """
    log_p = _precise(log_p)
    _require_classes("confident", log_p, 2)
    return _best_wrong(log_p, y)


def _best_wrong(z: Tensor, y: Tensor) -> Tensor:
    label = F.one_hot(y, z.shape[-1]).bool()
    return z.masked_fill(label, -torch.inf).max(-1).values


def _of(z: Tensor, y: Tensor) -> Tensor:
    return z.gather(-1, y[:, None]).squeeze(-1)


def _require_classes(name: str, logits: Tensor, classes: int) -> None:
    if logits.shape[-1] < classes:
        raise ValueError(
            f"the loss {name!r} needs at least {classes} classes, the predictor has {logits.shape[-1]}: "
            "use 'ce', which needs no more than one"
        )


def _precise(logits: Tensor) -> Tensor:
    """Convert half-precision logits to float32; in bfloat16, rounding can make a KL divergence negative."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
