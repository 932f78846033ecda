"""Properties of a predictor that no attack shows: randomness, batch dependence, vanishing gradients, cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from typing_extensions import override

from robustdeq.attacks import Oracle
from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import cross_entropy

IMAGES = 100
"""Number of images that are probed."""


@dataclass(frozen=True)
class Probes:
    """Measurements on the first images."""

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
    """Cost of the undefended model."""


@torch.no_grad()
def probe(subject: Subject, oracle: Oracle, x: Tensor, y: Tensor) -> Probes:
    """Probe a predictor; the oracle gives the gradients."""
    x, y = x[:IMAGES], y[:IMAGES]
    base = subject if subject.undefended is None else Subject(subject.undefended)
    with subject.prepared():
        first, second = _predict(subject, x), _predict(subject, x)
        alone = torch.cat([subject.predictor(image[None]) for image in x])
    scale = 1e-3 * first.abs().amax().clamp_min(1e-6)
    differs = (first.argmax(1) != second.argmax(1)) | ((first - second).abs().amax(1) > scale)
    return Probes(
        images=len(x),
        random=_share(differs),
        batch=_share(first.argmax(1) != alone.argmax(1)),
        vanishing=_share(_vanishes(oracle, x, y)),
        cost=arithmetic(subject, x[:1]),
        base_cost=arithmetic(base, x[:1]),
    )


def _predict(subject: Subject, x: Tensor) -> Tensor:
    """Logits, in parts if the whole batch does not fit into memory."""
    return torch.cat(halving(subject.predictor, x))


def _vanishes(oracle: Oracle, x: Tensor, y: Tensor) -> Tensor:
    def vanishes(rows: Tensor) -> Tensor:
        gradient = None
        with torch.enable_grad(), oracle.prepared():
            variable = x[rows].requires_grad_()
            logits = oracle(variable)
            if logits.requires_grad:
                loss = cross_entropy(logits, y[rows]).sum()
                (gradient,) = torch.autograd.grad(loss, variable, allow_unused=True)
        if gradient is None:
            return torch.ones_like(rows, dtype=torch.bool)
        return ((gradient == 0) | ~gradient.isfinite()).flatten(1).all(1)

    return torch.cat(halving(vanishes, torch.arange(len(x), device=x.device)))


def _share(flags: Tensor) -> float:
    return float(flags.double().mean())


def arithmetic(subject: Subject, x: Tensor) -> float:
    """Arithmetic of a prediction, in evaluations of f."""
    own = _flops(subject.predictor, x, subject)
    model = None if subject.dynamic is None else subject.dynamic.base
    if model is None:
        return 1.0
    with subject.prepared(), torch.no_grad():
        f, z0 = model.begin(x)
    one = _flops(f, z0, subject)
    return own / one if one else 1.0


def _flops(call: Any, argument: Tensor, subject: Subject) -> int:
    with subject.prepared(), torch.no_grad(), _Count() as count:
        call(argument)
    return count.total


class _Count(TorchDispatchMode):
    """Counts the operations of convolutions and matrix products, forward and backward.

    torch's `FlopCounterMode` hooks into modules and fails on a defence that differentiates during its forward pass.
    """

    total = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


def seconds_per_image(subject: Subject, x: Tensor) -> float:
    """Seconds per image of a prediction, the best of three; shown and never compared."""
    best = float("inf")
    with subject.prepared(), torch.no_grad():
        for _ in range(3):
            begin = time.perf_counter()
            _predict(subject, x)
            best = min(best, time.perf_counter() - begin)
    return best / len(x)
