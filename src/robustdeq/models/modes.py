"""Modes of a module, set for a while and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from robustdeq.models.blocks import constant_weights


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside, every submodule's own mode back afterwards."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


@contextmanager
def attacking(module: nn.Module) -> Iterator[None]:
    """Eval mode, and no gradients for parameters: only the input is differentiated."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    try:
        for p in trainable:
            p.requires_grad_(False)
        with evaluating(module), constant_weights(module):
            yield
    finally:
        for p in trainable:
            p.requires_grad_(True)
