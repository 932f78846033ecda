"""The exponential moving average of a model's weights and statistics."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move `average` towards `model` after `step` steps; the decay is smaller in the first steps."""
    decay = min(decay, (step + 1) / (step + 10))
    for mean, value in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value.to(mean.dtype), 1 - decay)
        else:
            mean.copy_(value)
