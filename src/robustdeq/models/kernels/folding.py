"""BatchNorm folded into the preceding convolutions: the same function in eval mode, with fewer passes over memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Module = TypeVar("Module", bound=nn.Module)


def folded(module: Module) -> Module:
    """A copy with constant weights in eval mode, every BatchNorm folded into the convolution registered before it.

    Modules must apply their convolutions and norms in the order in which they registered them.
    """
    with torch.inference_mode(False), torch.no_grad():  # the copy may outlive a caller in inference mode
        result = copy.deepcopy(module).eval().requires_grad_(False)
        for parent in list(result.modules()):
            for (name, conv), (norm_name, norm) in pairwise(list(parent.named_children())):
                if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d:
                    setattr(parent, name, fuse_conv_bn_eval(conv, norm).requires_grad_(False))
                    setattr(parent, norm_name, nn.Identity())
    return result


class FoldedCopies:
    """Folded copies of modules, made once per set of weights.

    Every call compares all weights and buffers with those that were folded, so that a change is noticed whatever made
    it: an optimizer, `load_state_dict`, `.to(...)`, `.data` or NumPy. Replaced submodules and new forward hooks are
    noticed too. Threads may share an object; copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._latest: _Folded | None = None

    def __call__(self, *modules: nn.Module) -> tuple[nn.Module, ...]:
        """The folded copies, one per module."""
        latest = self._latest
        if latest is None or not latest.is_of(modules):
            self._latest = latest = _Folded(modules)
        return latest.copies

    def __reduce__(self) -> tuple[type[FoldedCopies], tuple[()]]:
        return FoldedCopies, ()


class _Folded:
    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.structure = _structure(modules)
        # cloned before they are folded: a weight that another thread changes in between is noticed at the next call
        self.tensors = [t.detach().clone() for t in _tensors(modules)]
        self.copies = tuple(folded(m) for m in modules)

    def is_of(self, modules: Sequence[nn.Module]) -> bool:
        if self.structure != _structure(modules):
            return False
        pairs = list(zip(self.tensors, _tensors(modules), strict=True))
        if any(a.dtype != b.dtype or a.device != b.device or a.shape != b.shape for a, b in pairs):
            return False
        if all(a.device.type == "cpu" for a, _ in pairs):
            return all(torch.equal(a, b) for a, b in pairs)
        # on another device the host waits once, not per tensor
        return bool(torch.stack([(a == b).all() for a, b in pairs]).all())


def _structure(modules: Sequence[nn.Module]) -> list[tuple[Any, ...]]:
    """All submodules with their hooks' keys, the names of their tensors and the settings of norms, by identity."""
    return [
        (m, *m._forward_hooks, *m._forward_pre_hooks, *m._parameters, *m._buffers, getattr(m, "eps", None))
        for module in modules
        for m in module.modules()
    ]


def _tensors(modules: Sequence[nn.Module]) -> list[Tensor]:
    return [t for module in modules for t in (*module.parameters(), *module.buffers())]
