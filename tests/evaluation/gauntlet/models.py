"""Small classifiers of the embedded digits that the planted defences are made of, trained in seconds."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from robustdeq.attacks import PGD, Direct
from robustdeq.data import load_dataset
from robustdeq.threat import Linf

EPS = 0.2
IMAGES = 397


@cache
def data(count: int = IMAGES):
    """Test images and labels."""
    test = load_dataset("digits").test
    return test.pixels01(slice(0, count)), test.labels[:count]


def network(seed: int = 0, hidden: int = 64):
    """Pixels to logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@cache
def standard():
    """Trained on clean images: broken at EPS."""
    return fit(network(), epochs=12)


@cache
def adversarial():
    """The same network trained against PGD."""
    return fit(network(), epochs=25, attack=PGD(Linf(EPS), steps=4))


def fit(model: nn.Module, epochs: int, attack: PGD | None = None):
    """Train with Adam on the training digits."""
    train = load_dataset("digits").train
    x, y = train.pixels01(), train.labels
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(100):
            images = x[rows] if attack is None else attack(Direct(model), x[rows], y[rows]).images
            optimiser.zero_grad()
            F.cross_entropy(model(images), y[rows]).backward()
            optimiser.step()
    return model.eval().requires_grad_(False)
