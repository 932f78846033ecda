"""Predictors that are more robust than the base beside them."""

from __future__ import annotations

import torch

from robustdeq.attacks import PGD
from robustdeq.threat import Linf
from tests.evaluation.gauntlet.models import EPS, adversarial, fit, network


def adversarially_trained():
    return adversarial()


def quadrants(count: int = 397):
    """Images whose label is the bright quadrant; the last pixel betrays it too."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (count,), generator=generator)
    x = 0.15 + 0.1 * torch.rand(count, 1, 8, 8, generator=generator)
    for k, y in enumerate(labels.tolist()):
        row, column = 4 * (y // 2), 4 * (y % 2)
        x[k, :, row : row + 4, column : column + 4] += 0.6
    return x, labels


def brightest_quadrant():
    """Certified: means differ by at least 0.5, and an attack moves each by at most EPS = 0.2."""
    return lambda x: 20 * torch.nn.functional.avg_pool2d(x, 4).flatten(1)


def single_pixels():
    """A base that looks at contrasts of single pixels, far more than they can tell."""

    def predict(x):
        own = torch.nn.functional.avg_pool2d(x, 4).flatten(1)
        corner = x[:, :, 1::4, 1::4].flatten(1) - x[:, :, 2::4, 2::4].flatten(1)
        return own + 5 * corner

    return predict


def ensemble():
    nets = [adversarial(), fit(network(1), epochs=25, attack=PGD(Linf(EPS), steps=4))]
    return lambda x: sum(net(x) for net in nets) / 2


def prototypes():
    from robustdeq.data import load_dataset

    train = load_dataset("digits").train
    x = train.pixels01().flatten(1)
    means = torch.stack([x[train.labels == c].mean(0) for c in range(10)])
    return lambda images: -(images.flatten(1)[:, None] - means).square().sum(2)
