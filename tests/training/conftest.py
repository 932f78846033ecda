import pytest
import torch
from torch import nn

import robustdeq as rd


class Cell(nn.Module):
    """tanh(z W^T + u), dynamics without a split; W has norm `gain`, so below 1 the cell is a contraction."""

    def __init__(self, gain):
        super().__init__()
        w = torch.randn(6, 6, dtype=torch.float64)
        self.w = nn.Parameter(gain * w / torch.linalg.matrix_norm(w, 2))

    def forward(self, z, u):
        return torch.tanh(z @ self.w.T + u)


@pytest.fixture
def deq():
    """A DEQ of flat states for images of 3x8x8 pixels and 3 classes, without dropout: f costs next to nothing."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 6))
    return rd.DEQ(encoder=encoder, dynamics=Cell(0.8), head=nn.Linear(6, 3)).double()


@pytest.fixture
def make_model():
    """A small MDEQ in train mode, with dropout, whose logits differ between images."""

    def make(**options):
        torch.manual_seed(0)
        sizes = {"channels": (4, 8), "head_channels": (2, 4), "final_channels": 8, "expansion": 2, "groups": 4}
        model = rd.MDEQ(**{**sizes, "dropout": 0.3, **options}).double()
        for p in model.parameters():
            p.data += 0.2 * torch.randn(p.shape, dtype=p.dtype)
        return model.train()

    return make


@pytest.fixture
def model(make_model):
    return make_model()


@pytest.fixture
def resnet():
    torch.manual_seed(0)
    return rd.create_model("resnet", widths=(4, 8), blocks=(1, 1)).double().train()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(6, 3, 8, 8, dtype=torch.float64, generator=generator), torch.arange(6) % 3
