"""What a predictor answers to a few images: by that a store knows it again, whatever its code and weights say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.store.manifest import Answers
from robustdeq.evaluation.suites.subject import Subject

COUNT = 4
"""Images asked about."""
TOLERANCE = 1e-3
"""By how much of the largest logit answers may differ. Rounding moves them by about 1e-6 of it, also through a defence
along the sign (cifar10-tiny-trades-random); the defence itself, as printed, by 1e-2."""
DIGITS = 6


class NotLogitsError(ValueError):
    """What a predictor returns is something else."""


def ask(subject: Subject, x: Tensor) -> Tensor:
    """Logits of the first images.

    Raises:
        NotLogitsError: It returns something else.
        ValueError: It fails; RuntimeError if it fails with one.
    """
    some = x[:COUNT]
    some = (some.to(subject.dtype) / 255 if some.dtype == torch.uint8 else some).to(subject.device or some.device)
    with torch.no_grad(), subject.prepared():
        try:
            parts = halving(lambda images: checked_logits(subject.predictor(images), len(images)), some)
        except Exception as error:
            if isinstance(error, NotLogitsError):
                raise
            kind = RuntimeError if isinstance(error, RuntimeError) else ValueError
            said = f"{type(error).__name__}: {error}"
            raise kind(f"the predictor fails on images {tuple(some.shape)} ({said})") from error
    return torch.cat(parts)


def checked_logits(answer: Any, images: int) -> Tensor:
    """What a predictor answered to so many images, if it is one logit for each class."""
    tensor = isinstance(answer, Tensor)
    if tensor and answer.ndim == 2 and len(answer) == images and answer.is_floating_point():
        logits: Tensor = answer
        return logits
    what = f"a tensor {tuple(answer.shape)} of {answer.dtype}" if tensor else f"a {type(answer).__name__}"
    raise NotLogitsError(f"a predictor returns logits, (images, classes): for {images} images this one gave {what}")


def recorded(logits: Tensor, again: Tensor) -> Answers | None:
    """For the manifest; None if a second time gave others: a random predictor is not known by its answers."""
    first, second = (_rounded(values) for values in (logits, again))
    return first if alike(first, second) else None


def batch_dependent(subject: Subject, x: Tensor) -> bool:
    """Whether its answer to an image may depend on the others of the batch: by its solver, or as a trial shows.

    Neither is enough by itself: what a coupled solver does with a few images may be what it does with each alone, and
    an encoder may use statistics of its batch.
    """
    if not subject.solves_alone:
        return True
    parts = [ask(subject, part) for part in x[:COUNT].chunk(2)]
    return not alike(_rounded(ask(subject, x)), _rounded(torch.cat(parts)))


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
