"""Two defences of your own: one moves the image between solver steps, one changes what is read from the states."""

import torch
from torch import Tensor

import robustdeq as rd


class Sharpen(rd.InputDefence):
    """Moves the image where the predicted class becomes likelier, at most `radius` from the received one."""

    def __init__(self, predictor, *, every: int = 2, radius: float = 0.1) -> None:
        super().__init__(predictor, every=every)
        self.radius = radius

    def move(self, now: rd.Intervention) -> Tensor:
        """The image that the next solver steps see."""
        predicted = now.logits.argmax(1, keepdim=True)
        direction = now.gradient(lambda logits: logits.log_softmax(1).gather(1, predicted)[:, 0]).sign()
        change = now.image + self.radius / 2 * direction - now.received
        return (now.received + change.clamp(-self.radius, self.radius)).clamp(0, 1)


class MeanOfStates(rd.ReadoutDefence):
    """Averages the logits of the last states instead of reading one."""

    def __init__(self, predictor, *, states: int = 3) -> None:
        super().__init__(predictor)
        self.states = states

    def read(self, seen: rd.Readings) -> Tensor:
        """The deployed logits."""
        first = max(1, seen.last - self.states + 1)
        return torch.stack([seen.logits(state) for state in range(first, seen.last + 1)]).mean(0)


class Blur(torch.nn.Module):
    """Any module around a predictor is a defence too: this one blurs the image before the model sees it."""

    def __init__(self, predictor, weight: float = 0.5) -> None:
        super().__init__()
        self.predictor, self.weight = predictor, weight

    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits."""
        return self.predictor(torch.lerp(x, torch.nn.functional.avg_pool2d(x, 3, 1, 1), self.weight))
