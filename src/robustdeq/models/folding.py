"""BatchNorm folded into the convolutions before it: the same function in eval mode, with fewer passes over memory."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from robustdeq.models.blocks import Bottleneck

Module = TypeVar("Module", bound=nn.Module)


def folded(module: Module) -> Module:
    """A copy in eval mode, for inference and gradients of the input, in which every BatchNorm has been folded."""
    result = copy.deepcopy(module).eval().requires_grad_(False)
    for part in list(result.modules()):
        if isinstance(part, nn.Sequential):
            _fold_sequence(part)
        elif isinstance(part, Bottleneck):
            for k in "123":
                conv, bn = getattr(part, f"conv{k}"), getattr(part, f"bn{k}")
                setattr(part, f"conv{k}", _fused(conv, bn))
                setattr(part, f"bn{k}", nn.Identity())
    return result


def _fold_sequence(layers: nn.Sequential) -> None:
    k = 0
    while k + 1 < len(layers):
        first, second = layers[k], layers[k + 1]
        if type(first) is nn.Conv2d and type(second) is nn.BatchNorm2d:
            layers[k] = _fused(first, second)
            del layers[k + 1]
        k += 1


def _fused(conv: nn.Conv2d, bn: nn.BatchNorm2d) -> nn.Conv2d:
    fused: nn.Conv2d = fuse_conv_bn_eval(conv, bn)
    return fused.requires_grad_(False)
