"""The dynamics f of MDEQ (section 1 of docs/method.md)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from robustdeq.models.dynamics import BoundDynamics, SplitDynamics
from robustdeq.models.kernels import Kernel, WeightNormConv2d, untiled
from robustdeq.models.mdeq.blocks import Down, GroupNorm, ResidualBlock, Up
from robustdeq.models.mdeq.config import MDEQConfig

Weights = tuple[list[tuple[Kernel, Kernel]], list[Kernel]]
"""The effective weights per scale: those of the blocks' two convolutions, and those of the output convolutions."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The part of f that does not depend on the injection: all but the end of scale 0's block and its fusion."""

    b: Tensor
    """Scale 0 after its convolutions and dropout."""
    z: Tensor
    """Scale 0 of the state."""
    partial: list[Tensor]
    """The fusion sums over all scales except 0, one map per scale."""


class MDEQDynamics(SplitDynamics):
    """f: per-scale residual blocks, fusion of all scales into each, and an output convolution per scale.

    The state is flat, (B, D): the scales concatenated fine to coarse, each row-major (C, H, W).
    """

    def __init__(self, config: MDEQConfig) -> None:
        super().__init__()
        channels, groups = config.channels, config.groups
        scales = range(len(channels))
        self.channels = channels
        self.dropout = config.dropout
        # typed Any because nn.ModuleList and nn.ModuleDict do not know the types of their entries
        self.blocks: Any = nn.ModuleList(ResidualBlock(c, config.expansion, groups) for c in channels)
        self.down: Any = nn.ModuleDict(
            {f"{j}_{i}": Down(channels[j], channels[i], i - j, groups) for i in scales for j in range(i)}
        )
        self.up: Any = nn.ModuleDict(
            {f"{j}_{i}": Up(channels[j], channels[i], groups) for j in scales for i in range(j)}
        )
        self.out_conv: Any = nn.ModuleList(WeightNormConv2d(c, c, 1) for c in channels)
        self.out_norm: Any = nn.ModuleList(GroupNorm(groups // 2, c, affine=False) for c in channels)
        self._compiled: tuple[Any, Any] | None = None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the two halves of f with `torch.compile`; the solver's loop stays as it is."""
        self._compiled = (
            torch.compile(self.prepare_maps, *args, **kwargs),
            torch.compile(self.inject_maps, *args, **kwargs),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_compiled": None}  # copies and pickles are not compiled

    @property
    def eager(self) -> bool:
        """Whether f is not compiled."""
        return self._compiled is None

    @property
    def halves(self) -> tuple[Any, Any]:
        """The two halves of f, compiled if `compile` was called."""
        return self._compiled or (self.prepare_maps, self.inject_maps)

    def bind(
        self, u: Tensor, *, generator: torch.Generator | None = None, masks: Sequence[Tensor] | None = None
    ) -> BoundMDEQ:
        """f(.; u) for one pass; dropout masks, (B, c_i) per scale, are drawn now unless given."""
        if masks is None:
            masks = self.draw_masks(u, generator)
        return BoundMDEQ(self, u, None if masks is None else [m[:, :, None, None] for m in masks])

    def draw_masks(self, u: Tensor, generator: torch.Generator | None = None) -> list[Tensor] | None:
        """Dropout masks (B, c_i) per scale, drawn on the generator's device; None in eval mode."""
        if not self.training or self.dropout == 0:
            return None
        keep, device = 1 - self.dropout, u.device if generator is None else generator.device
        masks = [torch.empty(len(u), c, dtype=u.dtype, device=device) for c in self.channels]
        return [m.bernoulli_(keep, generator=generator).div_(keep).to(u.device) for m in masks]

    def shapes(self, u: Tensor) -> list[tuple[int, int, int]]:
        """The shape (c, h, w) of each scale."""
        return [(c, u.shape[2] >> i, u.shape[3] >> i) for i, c in enumerate(self.channels)]

    def initial(self, u: Tensor) -> Tensor:
        """Zeros (B, D), expanded from a single row, which `prepare` makes use of."""
        return u.new_zeros(1, sum(prod(s) for s in self.shapes(u))).expand(len(u), -1)

    def weights(self, shapes: Sequence[tuple[int, int, int]]) -> Weights:
        """The effective weights of the weight-normed convolutions for scales of these shapes."""
        sizes = [(height, width) for _, height, width in shapes]
        blocks = [block.weights(*size) for block, size in zip(self.blocks, sizes, strict=True)]
        if not self.eager:  # the compiler takes tensors and chooses its own algorithms
            blocks = [(untiled(first), untiled(second)) for first, second in blocks]
        return blocks, [layer.weight(*size) for layer, size in zip(self.out_conv, sizes, strict=True)]

    def prepare_maps(
        self, z: list[Tensor], weights: list[tuple[Kernel, Kernel]], masks: list[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Scale 0 before the injection, and the fusion sums that scale 0 does not enter."""
        before = [
            block.before_injection(zi, w, None if masks is None else masks[i])
            for i, (block, zi, w) in enumerate(zip(self.blocks, z, weights, strict=True))
        ]
        outs = {i: self.blocks[i].after_injection(before[i], z[i]) for i in range(1, len(z))}
        partial = []
        for i in range(len(z)):
            # Nearest upsampling is linear and its powers compose, so the coarser scales are summed coarsest first and
            # only one map is ever upsampled to full size. Sums go in place where the left side is nobody else's.
            total = None
            for j in reversed(range(i + 1, len(z))):
                term = self.up[f"{j}_{i}"](outs[j])
                total = F.interpolate(term if total is None else term.add_(total), scale_factor=2, mode="nearest")
            for j in range(1, i + 1):
                term = outs[j] if j == i else self.down[f"{j}_{i}"](outs[j])
                total = term if total is None else total.add_(term)
            partial.append(torch.zeros_like(z[i]) if total is None else total)
        return before[0], partial

    def inject_maps(
        self, b: Tensor, z: Tensor, partial: list[Tensor], u: Tensor, weights: list[Kernel]
    ) -> list[Tensor]:
        """The rest of f: the injection, the end of scale 0's block, its fusion, and the output convolutions."""
        out = self.blocks[0].after_injection(b + u, z)
        fused = [self.down[f"0_{i}"](out).add_(part) if i else out + part for i, part in enumerate(partial)]
        return [
            norm(conv(F.relu_(y), w))
            for y, conv, norm, w in zip(fused, self.out_conv, self.out_norm, weights, strict=True)
        ]


class BoundMDEQ(BoundDynamics):
    """f(.; u) of MDEQ; effective weights are computed at most once per pass and grad mode.

    With grad mode on, calls share the graph of the effective weights, so all of them belong to one `.backward()`.
    """

    def __init__(self, dynamics: MDEQDynamics, u: Tensor, masks: list[Tensor] | None) -> None:
        self.dynamics = dynamics
        self.u = u
        self.masks = masks
        self.shapes = dynamics.shapes(u)
        self._weights: dict[bool, Weights] = {}

    @override
    def __call__(self, z: Tensor) -> Tensor:
        return self.inject(self.prepare(z), self.u)

    @override
    def prepare(self, z: Tensor) -> _Prepared:
        if z.stride(0) == 0 and self.dynamics.eager:  # z^[0]: all rows are the same, and so are those of the result
            z = z[:1]
        maps = [m.contiguous(memory_format=torch.channels_last) for m in self.unpack(z)]
        b, partial = self.dynamics.halves[0](maps, self._effective_weights()[0], self.masks)
        return _Prepared(b, maps[0], partial)

    @override
    def inject(self, h: _Prepared, u: Tensor) -> Tensor:
        return torch.cat([m.flatten(1) for m in self.inject_unpacked(h, u)], 1)

    @override
    def inject_unpacked(self, h: _Prepared, u: Tensor) -> list[Tensor]:
        return self.dynamics.halves[1](h.b, h.z, h.partial, u, self._effective_weights()[1])

    @override
    def rebind(self, u: Tensor) -> BoundMDEQ:
        bound = copy.copy(self)
        bound.u, bound.shapes = u, self.dynamics.shapes(u)
        return bound

    @override
    def unpack(self, z: Tensor) -> list[Tensor]:
        parts = z.split([prod(s) for s in self.shapes], 1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _effective_weights(self) -> Weights:
        # weights computed under no_grad have no graph, so the solve and the differentiated calls need their own
        key = torch.is_grad_enabled()
        if key not in self._weights:
            self._weights[key] = self.dynamics.weights(self.shapes)
        return self._weights[key]
