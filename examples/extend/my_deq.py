"""A DEQ of your own for `robustdeq train --model.name my_deq:conv_deq`."""

import torch
from torch import Tensor, nn

import robustdeq as rd


class Cell(nn.Module):
    """f(z; u) = tanh(W * z / 2 + u): any module that takes z and u and returns a tensor shaped like z."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """One application of f."""
        return torch.tanh(self.conv(z) / 2 + u)


def conv_deq(in_channels: int, num_classes: int, width: int = 12) -> rd.DEQ:
    """A convolutional DEQ for images of any size."""
    return rd.DEQ(
        encoder=nn.Conv2d(in_channels, width, 3, padding=1),
        dynamics=Cell(width),
        head=nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, num_classes)),
        solver=rd.Broyden(max_steps=8),
        gradient=rd.Phantom(steps=5, damping=0.5),
    )
