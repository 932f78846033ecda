"""The parts of somebody's module: found by their usual names, given by name, or given as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

NAMES = {
    "encoder": ("encoder", "inject", "injection", "embed", "embedding", "stem"),
    "f": ("f", "func", "cell", "dynamics", "deq_layer", "layer", "block"),
    "head": ("head", "decoder", "decode", "classifier", "readout", "fc", "out"),
}
"""Attributes that a part is looked for in, most likely first."""


class AdaptError(ValueError):
    """A model cannot be taken over; the message says what stands in the way and what to do."""


class Part(nn.Module):
    """A function of somebody's module, with the module inside, so that its weights move and train with the model."""

    def __init__(self, call: Callable[..., Any], owner: nn.Module) -> None:
        super().__init__()
        self.call = call
        self.owner = owner

    @override
    def forward(self, *values: Tensor) -> Any:
        return self.call(*values)


def part(module: nn.Module, given: nn.Module | Callable[..., Any] | str | None, role: str) -> nn.Module:
    """The part with this role.

    Args:
        module: The whole model.
        given: The part, its attribute's name (dots lead into submodules), or None to look for it by the usual names.
        role: A key of `NAMES`.
    """
    if given is None:
        given = next((name for name in NAMES[role] if callable(getattr(module, name, None))), None)
        if given is None:
            raise AdaptError(
                f"{type(module).__name__} has no attribute {', '.join(NAMES[role])}: give {role}= as a module, a "
                "function or the name of an attribute; its attributes are "
                f"{', '.join(n for n, _ in module.named_children())}"
            )
    if isinstance(given, str):
        found: Any = module
        for name in given.split("."):
            if not hasattr(found, name):
                known = ", ".join(n for n, _ in found.named_children()) if isinstance(found, nn.Module) else ""
                raise AdaptError(f"{role}={given!r}: {type(found).__name__} has no {name}; it has {known}")
            found = getattr(found, name)
        given = found
    if isinstance(given, nn.Module):
        return given
    if not callable(given):
        raise AdaptError(f"{role} must be a module, a function or the name of an attribute, got {given!r}")
    return Part(given, module)
