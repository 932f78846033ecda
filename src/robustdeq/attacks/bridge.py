"""An oracle as pyautoattack wants its model: float32 in and out, any batch size, gradients for the input alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robustdeq.attacks.oracles import Oracle
from robustdeq.attacks.task import Task, deployed_values
from robustdeq.threat import L2, Linf, Threat


class Bridge:
    """The deployed predictor's logits with the surrogate's gradient, each pass counted for the images in `rows`."""

    def __init__(self, task: Task, rows: Tensor) -> None:
        self.task, self.rows, self.classes = task, rows, 0
        self.oracle = deployed_values(task.oracle)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of its own, which the caller may overwrite."""
        if len(x) == 0:  # Square asks for the images it has not fooled yet, even if there are none
            return x.new_zeros(0, self.classes, dtype=torch.float32)
        self.task.count(self.rows)
        logits: Tensor = _InputOnly.apply(x, self.oracle, self.task.x.dtype)
        self.classes = logits.shape[1]
        return logits


class _InputOnly(torch.autograd.Function):
    """oracle(x), for libraries that call `backward()`: parameters get no gradient, and x only a finite one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, oracle: Oracle, dtype: torch.dtype) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return oracle.deployed(x.to(dtype)).float().clone()
        ctx.x = x.detach().to(dtype).requires_grad_()
        with torch.enable_grad():
            ctx.logits = oracle(ctx.x)
        return ctx.logits.detach().float().clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = torch.autograd.grad(ctx.logits, ctx.x, grad.to(ctx.logits.dtype))
        return torch.where(gradient.isfinite(), gradient, 0).float(), None, None


def norm_of(threat: Threat) -> str:
    """The library's name of the norm."""
    for kind in (Linf, L2):
        if isinstance(threat, kind):
            return kind.__name__
    raise ValueError(f"FAB-T and Square know Linf and L2, got {threat}")
