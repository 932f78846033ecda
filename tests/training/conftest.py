import pytest
import torch

import robustdeq as rd


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
