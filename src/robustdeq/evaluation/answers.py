"""What a predictor answers to a few images: by that a store knows it again, whatever its code and weights say."""

from __future__ import annotations

import torch
from torch import Tensor

from robustdeq.evaluation.subject import Subject

COUNT = 4
"""Images asked about."""
TOLERANCE = 1e-3
"""By how much of the largest logit answers may differ. Machines round differently, by 1e-5 at most where a defence
carries it on; a defence itself may change as little as 1e-2."""
DIGITS = 6

Answers = list[list[float | None]]
"""Logits of each image; None where one is not finite."""


def ask(subject: Subject, x: Tensor) -> Tensor:
    """Logits of the first images.

    Raises:
        ValueError: It does not return logits.
    """
    some = x[:COUNT]
    some = (some.to(subject.dtype) / 255 if some.dtype == torch.uint8 else some).to(subject.device or some.device)
    with torch.no_grad(), subject.prepared():
        try:
            logits = subject.predictor(some)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"the predictor fails on images {tuple(some.shape)} ({said})") from error
    tensor = isinstance(logits, Tensor)
    if not tensor or logits.ndim != 2 or len(logits) != len(some) or not logits.is_floating_point():
        what = f"a tensor {tuple(logits.shape)} of {logits.dtype}" if tensor else f"a {type(logits).__name__}"
        raise ValueError(f"a predictor returns logits, (images, classes): for {len(some)} images this one gave {what}")
    return logits


def recorded(logits: Tensor, again: Tensor) -> Answers | None:
    """For the manifest; None if a second time gave others: a random predictor is not known by its answers."""
    first, second = (_rounded(values) for values in (logits, again))
    return first if alike(first, second) else None


def alike(found: Answers, wanted: Answers) -> bool:
    """Whether the same predictor can have given both."""
    a, b = (torch.tensor([[torch.nan if v is None else v for v in row] for row in rows]) for rows in (found, wanted))
    if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return False
    scale = float(a.nan_to_num().abs().max()) if a.numel() else 0.0
    return bool(((a - b).nan_to_num().abs() <= TOLERANCE * scale).all())


def _rounded(logits: Tensor) -> Answers:
    return [
        [float(f"{v:.{DIGITS}g}") if finite else None for v, finite in zip(row, ok, strict=True)]
        for row, ok in zip(logits.tolist(), logits.isfinite().tolist(), strict=True)
    ]
