"""MDEQ's f and prediction as docs/method.md, sections 1 and 2 write them, on the layers of an `MDEQ`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.models.kernels import WeightNormConv2d
from robustdeq.plain.solver import PlainSolution, broyden


class CountedDynamics:
    """f(.; u) with a count of its evaluations."""

    def __init__(self, model: MDEQ, u: Tensor, masks: Sequence[Tensor] | None = None) -> None:
        self.model = model
        self.u = u
        self.masks = masks
        self.evaluations = 0
        height, width = u.shape[2:]
        self.shapes = [(c, height >> i, width >> i) for i, c in enumerate(model.config.channels)]

    def __call__(self, z: Tensor) -> Tensor:
        """f(z; u), flat."""
        self.evaluations += 1
        return torch.cat([y.flatten(1) for y in evaluate(self.model, self.split(z), self.u, self.masks)], 1)

    def split(self, z: Tensor) -> list[Tensor]:
        """The flat state as one map per scale."""
        parts = z.split([math.prod(shape) for shape in self.shapes], dim=1)
        return [part.reshape(-1, *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def zero(self) -> Tensor:
        """The initial state z^[0]."""
        return self.u.new_zeros(len(self.u), sum(map(math.prod, self.shapes)))


def evaluate(model: MDEQ, z: list[Tensor], u: Tensor, masks: Sequence[Tensor] | None = None) -> list[Tensor]:
    """f(z; u): blocks, fusion, output convolutions; nothing is kept from one call to the next."""
    dynamics = model.dynamics
    outs = []
    for i, (block, zi) in enumerate(zip(dynamics.blocks, z, strict=True)):
        a = F.relu(block.gn1(convolve(block.conv1, zi)))
        b = convolve(block.conv2, a)
        if masks is not None:
            b = b * masks[i][:, :, None, None]
        if i == 0:
            b = b + u
        outs.append(block.gn3(F.relu(block.gn2(b) + zi)))
    results = []
    for i in range(len(z)):
        y = outs[i]
        for j in range(len(z)):
            if j > i:
                y = y + F.interpolate(dynamics.up[f"{j}_{i}"](outs[j]), scale_factor=2 ** (j - i), mode="nearest")
            if j < i:
                y = y + dynamics.down[f"{j}_{i}"](outs[j])
        results.append(dynamics.out_norm[i](convolve(dynamics.out_conv[i], F.relu(y))))
    return results


def convolve(layer: WeightNormConv2d, x: Tensor) -> Tensor:
    """Convolution with the weight g v / ||v||, made anew at every call."""
    norm = layer.weight_v.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)
    return F.conv2d(x, layer.weight_v * (layer.weight_g / norm), padding=layer.padding)


def default_layout(model: MDEQ) -> MDEQ:
    """A copy whose parameters lie in memory as PyTorch lays them out by default; channels-last is one of our means."""
    return copy.deepcopy(model).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def unroll(f: Callable[[Tensor], Tensor], z: Tensor, steps: int, damping: float) -> Tensor:
    """y = f(z), then `steps` times y <- (1 - damping) y + damping f(y)."""
    y = f(z)
    for _ in range(steps):
        y = (1 - damping) * y + damping * f(y)
    return y


def solve(f: CountedDynamics, *, max_steps: int = 8, tol: float = 1e-3) -> PlainSolution:
    """The Broyden solve from 0, without autograd."""
    with torch.no_grad():
        return broyden(f, f.zero(), max_steps=max_steps, tol=tol)


def predict(
    model: MDEQ, x: Tensor, *, max_steps: int = 8, steps: int = 5, masks: Sequence[Tensor] | None = None
) -> tuple[Tensor, CountedDynamics]:
    """Logits of the phantom-unrolled lowest-residual iterate, differentiable, and the f that counted its calls."""
    f = CountedDynamics(model, model.encoder(x), masks)
    y = unroll(f, solve(f, max_steps=max_steps).value, steps, 0.5)
    return model.head(f.split(y)), f
