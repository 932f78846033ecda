"""Context managers that put a module into a mode and restore its former one afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


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
    """A module that keeps what it computes from its weights alone while a `constant_weights` scope is open.

    A changed weight is recognised by its object, memory address and version counter. Writes that bypass the version
    counter (`.data`, NumPy) go unnoticed while the scope is open.
    """

    open_scopes = 0
    """Number of open `constant_weights` scopes that contain the module."""
    kept: tuple[list[tuple[Tensor, Tensor, int]], Any] | None = None
    """The weights and what was computed from them; dropped when the last scope closes."""

    def computed_once(self, weights: Iterable[Tensor], compute: Callable[[], T]) -> T:
        """compute(), without autograd, or what it returned before if a scope is open and the weights are the same."""
        weights, kept = list(weights), self.kept
        with torch.inference_mode(False), torch.no_grad():  # the result may outlive a caller in inference mode
            if not self.open_scopes or any(w.is_inference() for w in weights):
                return compute()
            if kept is None or not _are_same(weights, kept[0]):
                # the memory is held, so that no other weight can be allocated at the same address
                self.kept = kept = [(w, w.detach(), w._version) for w in weights], compute()
        return kept[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {**state, "open_scopes": 0, "kept": None}  # copies and pickles are in no scope


def _are_same(weights: list[Tensor], kept: list[tuple[Tensor, Tensor, int]]) -> bool:
    return len(weights) == len(kept) and all(
        w is own and w._version == version and w.data_ptr() == memory.data_ptr()
        for w, (own, memory, version) in zip(weights, kept, strict=True)
    )


@contextmanager
def constant_weights(module: nn.Module) -> Iterator[None]:
    """Modules compute what depends on weights alone once: for many passes between which no weight changes."""
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
