"""Planted defences that make nothing more robust, each hiding it in another way."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustdeq as rd
from tests.evaluation.gauntlet.models import EPS, adversarial, data, standard
from tests.evaluation.predictors import small_deq


def rounded_pixels():
    net = standard()
    return lambda x: net((4 * x).round() / 4)


def logits_times_ten_thousand():
    net = standard()
    return lambda x: 1e4 * net(x)


def logits_over_ten_thousand():
    net = standard()
    return lambda x: 1e-4 * net(x)


def argmax_outputs():
    net = standard()
    return lambda x: F.one_hot(net(x).argmax(1), 10).to(x.dtype)


def rounded_logits():
    net = standard()
    return lambda x: net(x).round()


def noise_on_inputs():
    net, noise = standard(), torch.Generator().manual_seed(0)
    return lambda x: net(x + 0.1 * torch.randn(x.shape, generator=noise).to(x))


def noise_on_logits():
    net, noise = standard(), torch.Generator().manual_seed(0)
    return lambda x: (z := net(x)) + torch.randn(z.shape, generator=noise).to(z)


def noise_around_a_robust_model():
    net, noise = adversarial(), torch.Generator().manual_seed(0)
    return lambda x: net(x + 0.05 * torch.randn(x.shape, generator=noise).to(x))


def stopped_gradient():
    net = standard()
    return lambda x: net(x.detach())


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def reversed_gradient():
    net = standard()
    return lambda x: net(_Reversed.apply(x))


def _descended(net: nn.Module, x: Tensor, steps: int, size: float) -> Tensor:
    """The images after steps along the sign that lower the entropy, within EPS; the change counts as a constant."""
    moved = x.detach()
    with torch.enable_grad():
        for _ in range(steps):
            moved = moved.detach().requires_grad_()
            log_p = net(moved).log_softmax(1)
            (gradient,) = torch.autograd.grad(-(log_p.exp() * log_p).sum(), moved)
            moved = (moved - size * gradient.sign()).clamp(x.detach() - EPS, x.detach() + EPS)
    return x + (moved.detach() - x.detach())


def purifier_by_confidence():
    net = adversarial()
    return lambda x: net(_descended(net, x, steps=4, size=EPS / 4))


def anti_adversary():
    net = adversarial()

    def predict(x):
        with torch.enable_grad():
            variable = x.detach().requires_grad_()
            log_p = net(variable).log_softmax(1)
            (gradient,) = torch.autograd.grad(log_p.max(1).values.sum(), variable)
        return net(x + EPS / 2 * gradient.sign())

    return predict


def clipped_features():
    net = standard()
    return lambda x: net[3](net[2](net[1](net[0](x))).clamp(max=0.3))


def batch_statistics():
    net = standard()

    def predict(x):
        z = net(x)
        return (z - z.mean(0)) / (z.std(0, unbiased=False) + 1e-3)

    return predict


def solver_cut_off():
    model = small_deq()
    model.solver = dataclasses.replace(model.solver, max_steps=1)
    model.tol = 1e-6
    return rd.EarlyState(model, state=1)


def times_out_into_the_plain_prediction():
    """The purifier needs a pass without autograd; while gradients are recorded it gives up."""
    net = standard()

    def predict(x):
        return net(x) if torch.is_grad_enabled() else net((2 * x).round() / 2)

    return predict


class Remembering(nn.Module):
    """Answers an image near one that it has seen as it answered that one."""

    def __init__(self, net: nn.Module, straight_through: bool) -> None:
        super().__init__()
        self.net, self.straight_through = net, straight_through
        self.seen: list[Tensor] = []
        self.said: list[Tensor] = []

    def forward(self, x):
        z = self.net(x)
        answers = torch.stack([self._recall(image, own) for image, own in zip(x.detach(), z.detach(), strict=True)])
        return z + (answers - z).detach() if self.straight_through else answers

    def _recall(self, image, own):
        if self.seen:
            distance = (torch.stack(self.seen) - image).flatten(1).abs().amax(1)
            nearest = int(distance.argmin())
            if distance[nearest] <= 2 * EPS:
                return self.said[nearest]
        self.seen.append(image)
        self.said.append(own)
        return own


def remembers_images():
    return Remembering(standard(), straight_through=False)


def remembers_images_with_a_gradient():
    return Remembering(standard(), straight_through=True)


def knows_the_test_images():
    net, (x, _) = standard(), data()
    answers = net(x)

    def predict(images):
        z = net(images)
        distance = (images.detach()[:, None] - x[None]).flatten(2).abs().amax(2)
        near, nearest = distance.min(1)
        stored = answers[nearest]
        return z + torch.where((near <= 1.05 * EPS)[:, None], stored - z, 0).detach()

    return predict


class HardensWithTime(nn.Module):
    """Rounds coarsely once it has been called a thousand times."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.calls = net, 0

    def forward(self, x):
        self.calls += 1
        return self.net(x if self.calls < 150 else x.round())


def hardens_with_time():
    return HardensWithTime(standard())


def quantised_frequencies():
    """As JPEG does, on one block: the cosine transform of the image, rounded coarsely."""
    net, k = standard(), torch.arange(8.0)
    cosines = torch.cos(torch.pi / 16 * (2 * k + 1) * k[:, None]) / 2
    cosines[0] /= 2**0.5

    def predict(x):
        rounded = 0.6 * (cosines @ x @ cosines.T / 0.6).round()
        return net((cosines.T @ rounded @ cosines).clamp(0, 1))

    return predict


def _is_8_bit(x: Tensor) -> Tensor:
    """Which images a file could hold; clean ones are, attacked ones are not."""
    pixels = 255 * x.detach()
    return (pixels.round() - pixels).flatten(1).abs().amax(1, keepdim=True) < 1e-3


def refuses_what_no_file_holds():
    net = standard()
    return lambda x: torch.where(_is_8_bit(x), net(x), torch.nan)


def gradient_of_files_only():
    net = standard()
    return lambda x: torch.where(_is_8_bit(x), net(x), net(x.detach()))


class RunningMean(nn.Module):
    """Classifies the mean of all batches of a size, with the gradient of the present one."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.means: dict[int, Tensor] = {}

    def forward(self, x):
        now = x.detach()
        self.means[len(x)] = mean = torch.lerp(self.means.get(len(x), now), now, 0.1)
        return self.net(x - now + mean)


def running_mean():
    return RunningMean(standard())
