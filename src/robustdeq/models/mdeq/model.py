"""MDEQ: encoder, dynamics and head put together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from robustdeq.models.deq import DEQ, Readout
from robustdeq.models.kernels import FoldedCopies
from robustdeq.models.mdeq.config import MDEQConfig
from robustdeq.models.mdeq.dynamics import MDEQDynamics
from robustdeq.models.mdeq.encoder import Encoder
from robustdeq.models.mdeq.head import Head
from robustdeq.models.pretrained import Architecture
from robustdeq.solve import GradientPolicy, Solver


class MDEQ(DEQ):
    """The multiscale DEQ classifier.

    Args:
        solver: As for `DEQ`.
        gradient: As for `DEQ`.
        tol: As for `DEQ`.
        readout: As for `DEQ`.
        sizes: Fields of `MDEQConfig`, such as channels=(16, 32).
    """

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
        self._folded = FoldedCopies()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @override
    def inference_parts(self) -> tuple[nn.Module, nn.Module]:
        encoder, head = self._folded(self.encoder, self.head)
        return encoder, head
