"""The multiscale DEQ classifier (MDEQ), METHOD.md section 1: encoder, head, and the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from robustdeq.models.blocks import Bottleneck, Normalize, conv_bn_relu, pooled
from robustdeq.models.checks import check_channels
from robustdeq.models.deq import DEQ, Readout
from robustdeq.models.folding import folded
from robustdeq.models.multiscale import MDEQConfig, MDEQDynamics
from robustdeq.models.pretrained import Architecture
from robustdeq.solve import GradientPolicy, Solver


class Encoder(nn.Module):
    """Pixels to injection: optional normalisation, the stem, and a 1x1 convolution (METHOD.md says when)."""

    def __init__(self, config: MDEQConfig) -> None:
        super().__init__()
        self.in_channels, self.divisor = config.in_channels, config.divisor
        width, times = config.channels[0], config.downsample
        self.normalize = (
            Normalize(config.mean, config.std) if config.mean is not None and config.std is not None else nn.Identity()
        )
        stem = conv_bn_relu(config.in_channels, width, 3, 2 if times >= 1 else 1)
        stem += conv_bn_relu(width, width, 3, 2 if times >= 2 else 1)
        for _ in range(times - 2):
            stem += conv_bn_relu(width, width, 3, 2)
        self.stem = nn.Sequential(*stem)
        injected = times > 0 or len(config.channels) > 2
        self.injection = nn.Sequential(*conv_bn_relu(width, width, 1)) if injected else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The injection u(x), channels last."""
        self._check(x)
        x = self.normalize(x).contiguous(memory_format=torch.channels_last)
        u: Tensor = self.injection(self.stem(x))
        return u

    def _check(self, x: Tensor) -> None:
        check_channels(x, self.in_channels)
        height, width = x.shape[2:]
        if height % self.divisor or width % self.divisor or not height or not width:
            raise ValueError(
                f"image size {height}x{width} does not fit: height and width must be multiples of {self.divisor} so "
                "that every scale halves evenly; pad or resize the images"
            )


class Head(nn.Module):
    """Maps of all scales to logits: bottlenecks, coarsening sum, conv1x1, pooling, linear."""

    def __init__(self, config: MDEQConfig) -> None:
        super().__init__()
        heads = config.head_channels
        self.blocks = nn.ModuleList(Bottleneck(c, h) for c, h in zip(config.channels, heads, strict=True))
        self.down = nn.ModuleList(
            nn.Sequential(*conv_bn_relu(4 * a, 4 * b, 3, 2, bias=True)) for a, b in pairwise(heads)
        )
        self.final = nn.Sequential(*conv_bn_relu(4 * heads[-1], config.final_channels, 1, bias=True))
        self.linear = nn.Linear(config.final_channels, config.num_classes)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Logits."""
        maps = [m.contiguous(memory_format=torch.channels_last) for m in maps]
        y = self.blocks[0](maps[0])
        for block, down, z in zip(self.blocks[1:], self.down, maps[1:], strict=True):
            y = block(z) + down(y)
        logits: Tensor = self.linear(pooled(self.final(y)))
        return logits


class MDEQ(DEQ):
    """The multiscale DEQ classifier; its sizes are keywords, those of `MDEQConfig`: `MDEQ(channels=(16, 32), ...)`."""

    encoder: Encoder
    dynamics: MDEQDynamics
    head: Head

    def __init__(
        self,
        *,
        solver: Solver | None = None,
        gradient: GradientPolicy | None = None,
        tol: float = 1e-3,
        readout: Readout = "lowest",
        **sizes: Any,
    ) -> None:
        config = MDEQConfig(**sizes)
        super().__init__(
            encoder=Encoder(config),
            dynamics=MDEQDynamics(config),
            head=Head(config),
            solver=solver,
            gradient=gradient,
            tol=tol,
            readout=readout,
        )
        self.config = config
        self.architecture = Architecture("mdeq", asdict(config))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @contextmanager
    def constant_parts(self) -> Iterator[None]:
        """As of any DEQ; what is compiled stays, because its copies would not be."""
        with super().constant_parts() if self.dynamics.eager else nullcontext():
            yield

    def input_parts(self) -> tuple[nn.Module, nn.Module]:
        """Copies with BatchNorm folded into the convolutions."""
        return folded(self.encoder), folded(self.head)
