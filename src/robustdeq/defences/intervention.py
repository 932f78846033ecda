"""What a defence sees when the solver pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from robustdeq.models import DEQ, BoundDynamics


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervention:
    """The pass at the state where the solver pauses."""

    model: DEQ
    f: BoundDynamics
    """The dynamics with the injection of `image`."""
    step: int
    """Number of the state, from 1."""
    state: Tensor
    """z^[step], (B, ...)."""
    received: Tensor
    """The received images x."""
    image: Tensor
    """The images x^ that the dynamics run with; those of the last intervention, at first the received ones."""

    @property
    def injection(self) -> Any:
        """The injection u of `image`."""
        return self.f.u

    @property
    def logits(self) -> Tensor:
        """The logits of the state, (B, C)."""
        logits: Tensor = self.model.inference_parts()[1](self.f.unpack(self.state))
        return logits

    def logits_at(self, image: Tensor) -> Tensor:
        """The logits head(f(z; image)) of the next state with another image, differentiable in it."""
        encoder, head = self.model.inference_parts()
        logits: Tensor = head(self.f.inject_unpacked(self.f.prepare(self.state), encoder(image)))
        return logits

    def gradient(self, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The gradient at `image` of a loss of `logits_at`, one value per image."""
        recorded = torch.is_grad_enabled()
        with torch.enable_grad():
            # a node of its own: the state may depend on `image` too, and counts as a constant here
            image = (
                self.image.clone() if recorded and self.image.requires_grad else self.image.detach().requires_grad_()
            )
            return torch.autograd.grad(loss(self.logits_at(image)).sum(), image, create_graph=recorded)[0]

    def moved(self, image: Tensor) -> Intervention:
        """The same moment with another image."""
        return replace(self, image=image, f=self.f.rebind(self.model.inference_parts()[0](image)))
