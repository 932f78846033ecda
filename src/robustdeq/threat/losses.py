"""Losses of attacks and objectives, per image, larger is worse for the classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """-log p_y."""
    return F.cross_entropy(_precise(logits), y, reduction="none")


def kl(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)), summed over classes."""
    log_p = _precise(reference).log_softmax(-1)
    return (log_p.exp() * (log_p - _precise(logits).log_softmax(-1))).sum(-1)


def _precise(logits: Tensor) -> Tensor:
    """Half-precision logits in float32: a KL divergence in bfloat16 can come out negative."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
