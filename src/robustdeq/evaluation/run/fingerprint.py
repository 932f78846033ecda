"""A predictor's logits on the first images: a store recognises its predictor by them when it is resumed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.store.manifest import Answers
from robustdeq.evaluation.suites.subject import Subject

COUNT = 4
"""Number of images."""
TOLERANCE = 1e-3
"""Tolerance, relative to the largest logit, within which two predictors count as the same. Rounding changes logits of
a DEQ of 0.4 M parameters by about 1e-6, also through a defence along the sign; the defence itself by 1e-2."""
DIGITS = 6
"""Significant digits that are stored."""


class NotLogitsError(ValueError):
    """A predictor returned something else than logits, or changed the images that it was given."""


def first_logits(subject: Subject, x: Tensor) -> Tensor:
    """The predictor's logits on the first images of x; if it fails, the error names the images' shape."""
    some = subject.pixels(x[:COUNT])

    def logits(images: Tensor) -> Tensor:
        given = images.clone()
        found = checked_logits(subject.predictor(given), len(images))
        if not torch.equal(given, images):
            raise NotLogitsError("the predictor changes its images in place: let it begin with x = x.clone()")
        return found

    with torch.no_grad(), subject.prepared():
        try:
            parts = halving(logits, some)
        except NotLogitsError:
            raise
        except Exception as error:
            kind = RuntimeError if isinstance(error, RuntimeError) else ValueError
            said = f"{type(error).__name__}: {error}"
            raise kind(f"the predictor fails on images {tuple(some.shape)} ({said})") from error
    return torch.cat(parts)


def checked_logits(answer: Any, images: int) -> Tensor:
    """The answer of a predictor to a number of images, if it is a tensor of logits (images, classes)."""
    tensor = isinstance(answer, Tensor)
    if tensor and answer.ndim == 2 and len(answer) == images and answer.is_floating_point():
        logits: Tensor = answer
        return logits
    what = f"a tensor {tuple(answer.shape)} of {answer.dtype}" if tensor else f"a {type(answer).__name__}"
    raise NotLogitsError(f"a predictor returns logits, (images, classes): for {images} images this one gave {what}")


def fingerprint(logits: Tensor, again: Tensor) -> Answers | None:
    """The logits for the manifest; None if a second pass gave others, because then the predictor is random."""
    first, second = (_rounded(values) for values in (logits, again))
    return first if alike(first, second) else None


def batch_dependent(subject: Subject, x: Tensor) -> bool:
    """Whether predictions may depend on the other images of the batch, by the solver's kind or by a trial.

    Neither test is enough by itself: with so few images a coupled solver may happen to give the same result, and an
    encoder may use statistics of its batch.
    """
    if not subject.solves_alone:
        return True
    parts = [first_logits(subject, part) for part in x[:COUNT].chunk(2)]
    return not alike(_rounded(first_logits(subject, x)), _rounded(torch.cat(parts)))


def alike(found: Answers, wanted: Answers) -> bool:
    """Whether the same predictor can have given both answers."""
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
