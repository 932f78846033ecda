"""Context managers that put a module into a mode and restore its former one afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode; afterwards every submodule is back in its own mode."""
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        yield
    finally:
        for m in training:
            m.training = True


@contextmanager
def attacking(module: nn.Module) -> Iterator[None]:
    """Eval mode with constant weights: parameters do not require gradients, only the input is differentiated."""
    trainable = [p for p in module.parameters() if p.requires_grad]
    try:
        for p in trainable:
            p.requires_grad_(False)
        with evaluating(module), constant_weights(module):
            yield
    finally:
        for p in trainable:
            p.requires_grad_(True)


class KeepsWeights:
    """A layer that keeps what it computes from its parameters alone while a `constant_weights` scope is open."""

    open_scopes = 0
    """Number of open `constant_weights` scopes that contain the layer."""
    kept: Any = None
    """What the layer keeps; dropped when the last scope closes."""


@contextmanager
def constant_weights(module: nn.Module) -> Iterator[None]:
    """Layers compute their effective weights once: for many passes between which no parameter changes."""
    layers = [m for m in module.modules() if isinstance(m, KeepsWeights)]
    for layer in layers:
        layer.open_scopes += 1
    try:
        yield
    finally:
        for layer in layers:
            layer.open_scopes -= 1
            if not layer.open_scopes:
                layer.kept = None
