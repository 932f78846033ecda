"""Tiny models whose weights and statistics are far from their trivial initial values."""

import pytest
import torch
from torch import nn

import robustdeq as rd

TINY = {
    "num_classes": 5,
    "channels": (4, 8),
    "expansion": 2,
    "groups": 2,
    "dropout": 0.0,
    "head_channels": (2, 4),
    "final_channels": 6,
}


def _mdeq(*, scales=2, seed=0, dtype=torch.float64, **options):
    sizes = {**TINY, "channels": (4, 8, 8, 4)[:scales], "head_channels": (2, 4, 2, 3)[:scales], **options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = rd.MDEQ(**sizes)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=(2 / module.weight[0].numel()) ** 0.5)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.2)
                module.running_var.uniform_(0.5, 1.5)
            if isinstance(module, nn.BatchNorm2d | nn.GroupNorm) and module.weight is not None:
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.normal_(module.bias, std=0.2)
    return model.to(dtype).eval()


@pytest.fixture(scope="session")
def make_mdeq():
    """A tiny MDEQ in eval mode, float64 unless told otherwise: make_mdeq(scales=2, seed=0, dtype=..., **sizes)."""
    return _mdeq


@pytest.fixture(scope="session")
def make_images():
    """Seeded pixels in [0, 1]: make_images(batch, channels, height, width)."""

    def make(*shape, seed=1, dtype=torch.float64):
        return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)

    return make


@pytest.fixture
def model(make_mdeq):
    return make_mdeq()


@pytest.fixture
def x(make_images):
    return make_images(3, 3, 8, 8)
