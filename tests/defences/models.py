"""Models to defend: a tiny MDEQ, a smooth cell, and one whose samples converge, diverge or become non-finite."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import robustdeq as rd
from robustdeq import plain


def images(*shape: int, seed: int = 1) -> Tensor:
    """Pixels in [0, 1], some of them at the borders."""
    x = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (1.2 * x - 0.1).clamp(0, 1)


def mdeq(**options) -> rd.MDEQ:
    """Two scales, weights and statistics far from their initial values."""
    sizes = {"channels": (4, 8), "head_channels": (2, 4), "final_channels": 6, "expansion": 2, "groups": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = rd.MDEQ(**{"num_classes": 5, "dropout": 0.0, **sizes, **options})
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=(2 / module.weight[0].numel()) ** 0.5)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.2)
                module.running_var.uniform_(0.5, 1.5)
        nn.init.normal_(model.head.linear.weight)
    return model.double().eval()


class Cell(nn.Module):
    """f(z; u) = tanh(W z + u)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=0.9)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        return torch.tanh(self.linear(z) + u)


class Moody(Cell):
    """A cell whose gain is the image's own: z -> gain sin(W z) + u, with the gain in the last entry of u."""

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        gain = torch.exp(10 * (u[:, -1:] - 0.5))
        return gain * torch.sin(self.linear(z)) + u[:, :-1]

    def initial(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u[:, :-1])


class WithBrightness(nn.Module):
    """Features of an image, and its first pixel."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.features(x), x.flatten(1)[:, :1].detach()], 1)


def cell(width: int = 12, **options) -> rd.DEQ:
    """Smooth everywhere, on (1, 4, 4) images; not an MDEQ."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Tanh())
        model = rd.DEQ(encoder=encoder, dynamics=Cell(width), head=nn.Linear(width, 4), **options)
        nn.init.normal_(model.head.weight)
    return model.double().eval()


def moody(width: int = 8, **options) -> rd.DEQ:
    """A small first pixel makes an image converge at once, a large one diverge; on (1, 4, 4) images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        encoder = WithBrightness(nn.Sequential(nn.Flatten(), nn.Linear(16, width)))
        model = rd.DEQ(encoder=encoder, dynamics=Moody(width), head=nn.Linear(width, 4), **options)
        nn.init.normal_(model.head.weight)
    return model.double().eval()


def plainly(model: rd.DEQ, x: Tensor, *, variant: str = "paper", **settings) -> plain.PlainDefence:
    """The same defended pass as `robustdeq.plain` runs it."""
    if isinstance(model, rd.MDEQ):
        return plain.defended_mdeq(model, x, variant=variant, tol=model.tol, **settings)[1]
    defend = plain.entropy_reduction if variant == "paper" else plain.released_entropy_reduction
    z0 = model.begin(x)[1].detach()

    def f_of(x):
        u = model.encoder(x)
        return lambda z: model.dynamics(z, u)

    return defend(f_of, model.head, z0, x, max_steps=model.solver.max_steps, tol=model.tol, **settings)
