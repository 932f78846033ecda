"""One training step as a module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from robustdeq.models import DEQ
from robustdeq.training.draws import Draws
from robustdeq.training.objectives import Losses, Objective, Penalty, Standard


class TrainStep(nn.Module):
    """Inner attack and loss of one step as a single forward pass, because DDP synchronises forward passes."""

    def __init__(self, model: nn.Module, objective: Objective, pretrain_layers: int) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.pretrain_layers = pretrain_layers

    def forward(
        self, x: Tensor, y: Tensor, where: tuple[int, int, int, int], phase: str, jacobian: float | None = None
    ) -> dict[str, Any]:
        """The loss and its parts.

        The draws (as a tuple of their fields) and the penalty (as its weight) are passed as plain values: in other
        precisions than float32 Fabric rebuilds its arguments, and it cannot rebuild frozen dataclasses.
        """
        draws = Draws(*where)
        penalty = None if jacobian is None else Penalty(weight=jacobian)
        if phase == "pretrain":
            losses = self._pretrain(x, y, draws)
        else:
            losses = self.objective(self.model, x, y, draws, penalty)
        return {"total": losses.total, "parts": losses.parts, "logits": losses.logits}

    def _pretrain(self, x: Tensor, y: Tensor, draws: Draws) -> Losses:
        if not isinstance(self.model, DEQ):
            return Standard()(self.model, x, y, draws)
        generator = draws.own_generator("dropout.loss")
        logits = self.model.truncated(x, layers=self.pretrain_layers, generator=generator)
        ce = nn.functional.cross_entropy(logits, y)
        return Losses(total=ce, parts={"ce": ce.detach()}, logits=logits.detach())
