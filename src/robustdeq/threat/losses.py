"""Losses of attacks and objectives, per image, larger is worse for the classifier."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """-log p_y."""
    return F.cross_entropy(logits, y, reduction="none")


def kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)), summed over classes."""
    log_p = reference.log_softmax(-1)
    return (log_p.exp() * (log_p - logits.log_softmax(-1))).sum(-1)
