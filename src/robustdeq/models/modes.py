"""Modes of a module, set for a while and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, runtime_checkable

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


@runtime_checkable
class Prepares(Protocol):
    """A module that knows faster forms of its parts for as long as its weights are constant."""

    def constant_parts(self) -> AbstractContextManager[None]:
        """Inside, they stand in the place of its own."""
        ...


@contextmanager
def constant_parts(module: nn.Module) -> Iterator[None]:
    """Inside, every part that knows one goes by a faster form of itself: the same function of its input but for
    rounding, for many passes in eval mode between which no parameter changes.

    `state_dict()` is not the module's own there.
    """
    with ExitStack() as stack:
        for part in [m for m in module.modules() if isinstance(m, Prepares)]:
            stack.enter_context(part.constant_parts())
        yield
