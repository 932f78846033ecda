"""The early-state defence: predict from a solver iterate instead of the unrolled final state."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from robustdeq.models.predictor import Defence, DynamicPredictor, Pass


class EarlyState(Defence):
    """Predicts from head(z^[state]) of the predictor inside, defended or not.

    The gradient is that of the model's gradient policy at this state.

    Args:
        predictor: A DEQ, or a defence around one.
        state: The state to read, counted from 1.
    """

    def __init__(self, predictor: DynamicPredictor, *, state: int = 8) -> None:
        super().__init__(predictor)
        self.state = state
        _ = self.early_state

    reads_residuals = False

    @property
    @override
    def early_state(self) -> int:  # type: ignore[override]  # a property, because it is checked
        if not 1 <= self.state <= self.num_states:  # the model's solver may have been replaced since construction
            raise ValueError(f"state counts from 1 to the solver's {self.num_states} steps, got {self.state}")
        return self.state

    @property
    @override
    def watched(self) -> list[int]:
        """The watched states of the predictor inside, up to `state`; `state` itself if there are none."""
        return [t for t in self.predictor.watched if t <= self.state] or [self.state]

    @override
    def read_out(self, walked: Pass, *, exact: bool = False) -> Tensor:
        return self.predictor.read_state(walked, self.state, exact=exact)

    @classmethod
    def select(cls, predictor: DynamicPredictor, x: Tensor, y: Tensor, *, batch_size: int = 250) -> EarlyState:
        """Reads the state with the highest accuracy on the given images; the earliest of equally good ones.

        The paper selects by accuracy under the ready-made PGD-10 on held-out images:
        `robustdeq.evaluation.select_state` makes such images and passes them to this method.

        Args:
            predictor: A DEQ, or a defence around one.
            x: Images, pixels in [0, 1].
            y: Labels.
            batch_size: Number of images per pass.
        """
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor) or x.shape[:1] != y.shape or not len(x):
            raise ValueError("expected images (B, ...) and as many labels (B,), as two tensors")
        correct = torch.zeros(predictor.num_states, dtype=torch.int64)
        for images, labels in zip(x.split(batch_size), y.split(batch_size), strict=True):
            predictions = predictor.trajectory(images).logits.argmax(-1)
            correct += (predictions == labels).sum(1).cpu()
        return cls(predictor, state=int(correct.argmax()) + 1)

    @override
    def extra_repr(self) -> str:
        return f"state={self.state}"
