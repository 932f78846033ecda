"""What a prediction costs: arithmetic in evaluations of f, and seconds."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from typing_extensions import override

from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.suites.subject import Subject


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
            halving(subject.predictor, x)
            best = min(best, time.perf_counter() - begin)
    return best / len(x)
