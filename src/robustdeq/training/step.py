"""One training step as a module."""

from __future__ import annotations

from torch import Tensor, nn

from robustdeq.models import DEQ
from robustdeq.training.draws import Draws
from robustdeq.training.objectives import Losses, Objective, Standard


class TrainStep(nn.Module):
    """Inner attack and loss of one step as a single forward pass, because DDP synchronises forward passes."""

    def __init__(self, model: nn.Module, objective: Objective, pretrain_layers: int) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.pretrain_layers = pretrain_layers

    def forward(
        self, x: Tensor, y: Tensor, where: tuple[int, int, int, int], phase: str, jacobian: float = 0.0
    ) -> Losses:
        """The loss and its parts, with a Jacobian penalty of this weight.

        The draws are passed as a tuple of their fields: in other precisions than float32 Fabric rebuilds its arguments,
        and it cannot rebuild frozen dataclasses.
        """
        draws = Draws(*where)
        if phase != "pretrain":
            return self.objective(self.model, x, y, draws, jacobian)
        if not isinstance(self.model, DEQ):
            return Standard()(self.model, x, y, draws)
        generator = draws.own_generator("dropout.loss")
        logits = self.model.truncated(x, layers=self.pretrain_layers, generator=generator)
        ce = nn.functional.cross_entropy(logits, y)
        return Losses(ce, {"ce": ce.detach()}, logits.detach())
