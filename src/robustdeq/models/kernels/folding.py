"""BatchNorm folded into the preceding convolutions: the same function in eval mode, with fewer passes over memory."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import TypeVar

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Module = TypeVar("Module", bound=nn.Module)


def folded(module: Module) -> Module:
    """A copy with constant weights in eval mode, every BatchNorm folded into the convolution registered before it.

    Modules must apply their convolutions and norms in the order in which they registered them.
    """
    result = copy.deepcopy(module).eval().requires_grad_(False)
    for parent in list(result.modules()):
        for (name, conv), (norm_name, norm) in pairwise(list(parent.named_children())):
            if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d:
                setattr(parent, name, fuse_conv_bn_eval(conv, norm).requires_grad_(False))
                setattr(parent, norm_name, nn.Identity())
    return result
