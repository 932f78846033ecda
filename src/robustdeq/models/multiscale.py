"""The dynamics of MDEQ and their sizes, METHOD.md section 1."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustdeq.models.blocks import Down, GroupNorm, ResidualBlock, Up, WeightNormConv2d
from robustdeq.models.convolution import Kernel, untiled
from robustdeq.models.dynamics import BoundDynamics, SplitDynamics


@dataclass(frozen=True, kw_only=True)
class MDEQConfig:
    """The sizes of an MDEQ; the defaults are mdeq-large, the paper's DEQ-Large."""

    num_classes: int = 10
    in_channels: int = 3
    channels: Sequence[int] = (32, 64, 128, 256)
    """State channels per scale, fine to coarse; scale i has 1/2^i of the resolution."""
    expansion: int = 5
    """Inner width of a block, as a multiple of its channels."""
    groups: int = 8
    """GroupNorm groups; the last norm of f has half as many."""
    dropout: float = 0.22
    """Channel-wise, drawn once per forward pass, training mode only."""
    head_channels: Sequence[int] = (14, 28, 56, 112)
    final_channels: int = 1680
    downsample: int = 0
    """How many times the stem halves the resolution."""
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    """Pixel normalisation as the model's first layer; none by default."""

    def __post_init__(self) -> None:
        for name in ("channels", "head_channels", "mean", "std"):  # JSON and YAML bring lists
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        if not self.channels or len(self.channels) != len(self.head_channels):
            raise ValueError(
                f"channels and head_channels need one entry per scale: got {self.channels} and {self.head_channels}"
            )
        if self.groups < 2 or any(c % self.groups for c in self.channels):
            raise ValueError(
                f"groups must be at least 2 and divide every scale's channels {self.channels}: {self.groups}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std are given together or not at all")
        if self.mean is not None and self.std is not None and not len(self.mean) == len(self.std) == self.in_channels:
            raise ValueError(f"mean and std need one entry per input channel ({self.in_channels})")
        sizes = (self.num_classes, self.in_channels, self.expansion, self.final_channels, *self.channels)
        if min(*sizes, *self.head_channels) < 1 or self.downsample < 0:
            raise ValueError(f"every size must be positive: {self}")

    @property
    def divisor(self) -> int:
        """Image height and width must be multiples of this."""
        return int(2 ** (self.downsample + len(self.channels) - 1))


Weights = tuple[list[tuple[Kernel, Kernel]], list[Kernel]]
"""The effective weights of the blocks' convolutions and of the output convolutions, scale by scale."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What f computes before the injection enters: everything but scale 0's tail and what follows from it."""

    b: Tensor
    """Scale 0 after its convolutions and dropout."""
    z: Tensor
    """Scale 0 of the state."""
    partial: list[Tensor]
    """Per scale, the fusion sum over all scales but 0."""


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
        # Any: nn.ModuleList and nn.ModuleDict do not tell the type checker what they hold
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
        return {**super().__getstate__(), "_compiled": None}  # copies and pickles are eager

    @property
    def eager(self) -> bool:
        """Not compiled."""
        return self._compiled is None

    @property
    def halves(self) -> tuple[Any, Any]:
        """The two halves of f, compiled if asked for."""
        return self._compiled or (self.prepare_maps, self.inject_maps)

    def bind(
        self, u: Tensor, *, generator: torch.Generator | None = None, masks: Sequence[Tensor] | None = None
    ) -> BoundMDEQ:
        """f(.; u) for one pass, with dropout masks (B, c_i) per scale drawn now unless given."""
        if masks is None:
            masks = self.draw_masks(u, generator)
        return BoundMDEQ(self, u, None if masks is None else [m[:, :, None, None] for m in masks])

    def draw_masks(self, u: Tensor, generator: torch.Generator | None = None) -> list[Tensor] | None:
        """Dropout masks (B, c_i), drawn on the generator's device; none in eval mode."""
        if not self.training or self.dropout == 0:
            return None
        keep, device = 1 - self.dropout, u.device if generator is None else generator.device
        masks = [torch.empty(len(u), c, dtype=u.dtype, device=device) for c in self.channels]
        return [m.bernoulli_(keep, generator=generator).div_(keep).to(u.device) for m in masks]

    def shapes(self, u: Tensor) -> list[tuple[int, int, int]]:
        """(c, h, w) of each scale."""
        return [(c, u.shape[2] >> i, u.shape[3] >> i) for i, c in enumerate(self.channels)]

    def initial(self, u: Tensor) -> Tensor:
        """Zeros, flat; one row stands for all, and f knows it."""
        return u.new_zeros(1, sum(prod(s) for s in self.shapes(u))).expand(len(u), -1)

    def weights(self, shapes: Sequence[tuple[int, int, int]]) -> Weights:
        """The effective weights of the weight-normed convolutions, for states of these shapes."""
        sizes = [(height, width) for _, height, width in shapes]
        blocks = [block.weights(*size) for block, size in zip(self.blocks, sizes, strict=True)]
        if not self.eager:  # the compiler is handed tensors, and chooses its own algorithms
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
                total = _upsample(term if total is None else term.add_(total))
            for j in range(1, i + 1):
                term = outs[j] if j == i else self.down[f"{j}_{i}"](outs[j])
                total = term if total is None else total.add_(term)
            partial.append(torch.zeros_like(z[i]) if total is None else total)
        return before[0], partial

    def inject_maps(
        self, b: Tensor, z: Tensor, partial: list[Tensor], u: Tensor, weights: list[Kernel]
    ) -> list[Tensor]:
        """The injection, scale 0's tail, what it sends to the other scales, and the output convolutions."""
        out = self.blocks[0].after_injection(b + u, z)
        fused = [self.down[f"0_{i}"](out).add_(part) if i else out + part for i, part in enumerate(partial)]
        return [
            norm(conv(F.relu_(y), w))
            for y, conv, norm, w in zip(fused, self.out_conv, self.out_norm, weights, strict=True)
        ]


class BoundMDEQ(BoundDynamics):
    """f(.; u) for one pass: masks are drawn, effective weights are computed at most once per grad mode.

    With grad mode on, calls share the graph of the effective weights: what they compute is meant for one `.backward()`.
    """

    channels_last = False
    """Each scale of the flat state is (H, W, C), as its map lies in memory, instead of (C, H, W)."""

    def __init__(self, dynamics: MDEQDynamics, u: Tensor, masks: list[Tensor] | None) -> None:
        self.dynamics = dynamics
        self.u = u
        self.masks = masks
        self.shapes = dynamics.shapes(u)
        self._weights: dict[bool, Weights] = {}

    def __call__(self, z: Tensor) -> Tensor:
        """f(z; u)."""
        return self.inject(self.prepare(z), self.u)

    def prepare(self, z: Tensor) -> _Prepared:
        """All block convolutions, and the scales that the injection does not reach before the fusion."""
        if z.stride(0) == 0 and self.dynamics.eager:  # z^[0]: the rows are one and the same, so are theirs in h
            z = z[:1]
        maps = [m.contiguous(memory_format=torch.channels_last) for m in self.unpack(z)]
        b, partial = self.dynamics.halves[0](maps, self._effective_weights()[0], self.masks)
        return _Prepared(b, maps[0], partial)

    def inject(self, h: _Prepared, u: Tensor) -> Tensor:
        """The rest of f, flat."""
        maps = self.inject_unpacked(h, u)
        return torch.cat([(m.permute(0, 2, 3, 1) if self.channels_last else m).flatten(1) for m in maps], 1)

    def inject_unpacked(self, h: _Prepared, u: Tensor) -> list[Tensor]:
        """The rest of f, one map per scale, without the detour over the flat state."""
        return self.dynamics.halves[1](h.b, h.z, h.partial, u, self._effective_weights()[1])

    def rebind(self, u: Tensor) -> BoundMDEQ:
        """The same masks and weights with another injection."""
        bound = copy.copy(self)
        bound.u, bound.shapes = u, self.dynamics.shapes(u)
        return bound

    def reordered(self) -> BoundMDEQ:
        """The same pass over states whose scales are (H, W, C)."""
        bound = copy.copy(self)
        bound.channels_last = True
        return bound

    def unpack(self, z: Tensor) -> list[Tensor]:
        """The flat state as one map per scale."""
        parts = z.split([prod(s) for s in self.shapes], 1)
        if self.channels_last:
            return [
                part.unflatten(1, (h, w, c)).permute(0, 3, 1, 2)
                for part, (c, h, w) in zip(parts, self.shapes, strict=True)
            ]
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _effective_weights(self) -> Weights:
        # weights made under no_grad carry no history: the solve and the differentiated calls each need their own
        key = torch.is_grad_enabled()
        if key not in self._weights:
            self._weights[key] = self.dynamics.weights(self.shapes)
        return self._weights[key]


def _upsample(y: Tensor) -> Tensor:
    return F.interpolate(y, scale_factor=2, mode="nearest")
