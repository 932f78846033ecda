"""Timing on a noisy machine, and counts of the multiply-adds in convolutions."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from robustdeq import create_model
from robustdeq.cli.progress import left
from robustdeq.models import MDEQ

ENOUGH = 4
"""Smallest number of rounds for which quartiles are reported."""

COUNTED = 8
"""Number of images on which an attack's multiply-adds are counted, in a run of its own: counting takes time."""


def times(rounds: int, *jobs: Callable[[], Any], say: Callable[[str], None], what: str) -> list[list[float]]:
    """Seconds of each job, round by round; the jobs take turns, so that a slow phase of the machine hits all alike.

    One round before the timed ones warms up. `say` is told before every job `what` is measured and the remaining time.
    """
    taken: list[list[float]] = [[] for _ in jobs]
    began, total = time.perf_counter(), (rounds + 1) * len(jobs)
    for done in range(total):
        say(f"{what}: {done} of {total} runs{left(done, total, time.perf_counter() - began)}")
        round_, i = divmod(done, len(jobs))
        start = time.perf_counter()
        jobs[i]()
        if round_ > 0:
            taken[i].append(time.perf_counter() - start)
    return taken


def beside_plain(ours: list[float], plain: list[float], batch: int) -> dict[str, Any]:
    """The least times per image, their ratio, and with enough rounds the quartiles of the ratios of single rounds.

    The two jobs of a round follow each other, so a slow phase of the machine mostly hits both; the quartiles (lower,
    median, upper) show how reliable the ratio of the least times is.
    """
    record: dict[str, Any] = {
        "ours": min(ours) / batch,
        "plain": min(plain) / batch,
        "speedup": min(plain) / min(ours),
    }
    if len(ours) >= ENOUGH:
        ratios = [p / o for o, p in zip(ours, plain, strict=True)]
        record["speedup_quartiles"] = quantiles(ratios, method="inclusive")
    return record


class Convolutions(TorchDispatchMode):
    """Counts the multiply-adds of convolutions, forward and backward, also of those computed as matrix products.

    With `keep`, `calls` repeat these convolutions.
    """

    def __init__(self, *, keep: bool = False) -> None:
        super().__init__()
        self.macs = 0
        self.keep = keep
        self.calls: list[Callable[[], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation; count it if it is a convolution."""
        result = func(*args, **(kwargs or {}))
        if macs := _multiply_adds(func, args, result):
            self.macs += macs
            if self.keep:
                self.calls.append(partial(func, *args))
        return result


def _multiply_adds(func: Any, args: tuple[Any, ...], result: Any) -> int:
    """Multiply-adds of an operation that computes a convolution; 0 for any other operation."""
    if func is torch.ops.aten.convolution.default:
        return int(result.numel() * args[1][0].numel())
    if func is torch.ops.aten.convolution_backward.default:
        sides = sum(args[-1][:2])  # the gradient of the input, of the weight: each costs what the forward did
        return int(sides * args[0].numel() * args[2][0].numel())
    if func is torch.ops.aten.mm.default:
        return int(result.numel() * args[0].shape[1])
    if func is torch.ops.aten.bmm.default and min(*args[0].shape[1:], args[1].shape[2]) > 1:
        return int(result.numel() * args[0].shape[2])  # tiles; Broyden's products have a single row or column
    return 0


def multiply_adds(job: Callable[[], Any]) -> int:
    """Multiply-adds in the convolutions of a job."""
    with Convolutions() as count:
        job()
    return count.macs


@torch.no_grad()
def macs_of_f(model: MDEQ, x: Tensor) -> int:
    """Multiply-adds of one evaluation of f on these images: the unit of f-equivalents."""
    f, z0 = model.begin(x)
    z = f(z0)  # the weights are computed at the first call
    return multiply_adds(partial(f, z))


def model_and_images(name: str, batch: int) -> tuple[MDEQ, Tensor]:
    """The model of this name in eval mode, and random images."""
    model = create_model(name).eval()
    if not isinstance(model, MDEQ):
        raise ValueError(f"robustdeq bench measures MDEQ models, not {name}")
    return model, torch.rand(batch, model.config.in_channels, 32, 32, generator=torch.Generator().manual_seed(0))


def arithmetic(ours: float, plain: float, macs: tuple[int, int], peak: float) -> dict[str, float]:
    """Fields of a record that compare the speed of a job with what its multiply-adds allow.

    `ours` and `plain` are the seconds and `macs` the multiply-adds of our and of the plain job, for the same number of
    images; `peak` is the machine's largest rate of multiply-adds per second.
    """
    return {
        "macs_speedup": macs[1] / macs[0],
        "fraction_of_peak": macs[0] / ours / peak,
        "speedup_at_peak": plain * peak / macs[0],
    }


def peak_rate(rounds: int, say: Callable[[str], None]) -> float:
    """Multiply-adds per second of the fastest of a few large, well-shaped convolutions."""
    rates = []
    for channels, size in ((64, 64), (128, 32), (256, 16)):
        x = torch.randn(16, channels, size, size).contiguous(memory_format=torch.channels_last)
        w = torch.randn(channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)
        job = partial(torch.nn.functional.conv2d, x, w, padding=1)
        (taken,) = times(rounds, job, say=say, what="the machine's peak convolution rate")
        rates.append(x.numel() * w[0].numel() / min(taken))
    return max(rates)
