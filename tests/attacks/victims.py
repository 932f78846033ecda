"""Models to attack: one with a closed form, one that treats each row by itself, one trained on digits."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from robustdeq.data import load_digits


class Linear(nn.Module):
    """Logits W x + b in float64, for images of nine pixels."""

    def __init__(self, classes=5, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(classes, 9, dtype=torch.float64, generator=generator))
        self.bias = nn.Parameter(torch.randn(classes, dtype=torch.float64, generator=generator))

    def forward(self, x):
        return x.flatten(1) @ self.weight.T + self.bias


class RowByRow(nn.Module):
    """A smooth network in float64 with batch norm and dropout, in elementwise products and sums: rows are alone."""

    def __init__(self, classes=5, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.inner = nn.Parameter(torch.randn(16, 36, dtype=torch.float64, generator=generator))
        self.norm = nn.BatchNorm1d(16).double()
        self.dropout = nn.Dropout(0.5)
        self.outer = nn.Parameter(torch.randn(classes, 16, dtype=torch.float64, generator=generator))
        self.bias = nn.Parameter(torch.zeros(classes, dtype=torch.float64))
        with torch.no_grad():  # no class preferred, so that small changes matter
            self.bias.sub_(self.eval()(images(64, seed=1)).mean(0))
        self.train()

    def forward(self, x):
        hidden = self.dropout(self.norm((x.flatten(1)[:, None] * self.inner).sum(-1)).sigmoid())
        return (hidden[:, None] * self.outer).sum(-1) + self.bias


def images(count, shape=(1, 6, 6), seed=0, dtype=torch.float64):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def predictions(model, x):
    with torch.no_grad():
        return model(x).argmax(1)


@cache
def digits():
    """(model, x, y): a convnet trained for a few seconds, and 200 of its test images; float32, 10 classes, 8x8."""
    train, _, test = load_digits()
    x, y = train.pixels.float() / 255, train.labels
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for step in range(300):
            rows = torch.randint(len(x), (64,))
            noisy = x[rows] + 0.2 * torch.randn_like(x[rows]).sign() * torch.rand(64, 1, 1, 1) * (step % 2)
            optimiser.zero_grad()
            F.cross_entropy(model(noisy.clamp(0, 1)), y[rows]).backward()
            optimiser.step()
    return model.eval(), test.pixels[:200].float() / 255, test.labels[:200]
