"""Folded copies compute the same function of their input."""

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.models.folding import folded


@pytest.fixture
def model():
    torch.manual_seed(0)
    # the second scale's bottleneck keeps its channel count: no convolution in its shortcut
    model = rd.MDEQ(channels=(8, 16), head_channels=(3, 4), groups=4, final_channels=10, downsample=1, dropout=0.0)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                nn.init.uniform_(part.weight, 0.5, 2)
                nn.init.normal_(part.bias)
    return model.double()


def test_encoder_and_head_are_the_same_functions_in_eval_mode_with_the_same_gradients(model):
    x = torch.rand(3, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    model.eval()
    encoder, head = model.input_parts()
    f, _ = model.begin(x)
    h = f.prepare(torch.randn(3, 8 * 16 + 16 * 4, dtype=torch.float64))
    expected = model.head(f.unpack(f.inject(h, model.encoder(x))))
    actual = head(f.inject_unpacked(h, encoder(x)))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_no_batchnorm_is_left_and_the_original_is_untouched(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for part in (model.encoder, model.head):
        copy = folded(part)
        assert not [m for m in copy.modules() if isinstance(m, nn.BatchNorm2d)]
        assert not [p for p in copy.parameters() if p.requires_grad]
        assert not copy.training
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
