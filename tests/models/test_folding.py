"""Folded copies compute the same function of their input."""

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.models.folding import folded
from robustdeq.models.modes import constant_parts


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


def trained_resnet():
    torch.manual_seed(1)
    model = rd.create_model("resnet-tiny").double()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(std=0.2)
            part.running_var.uniform_(0.5, 2)
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.normal_(part.bias, std=0.2)
    return model.eval()


def test_constant_parts_of_a_resnet_have_no_norms_and_the_same_logits_and_gradients():
    model = trained_resnet()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    expected = model(x)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with constant_parts(model):
        assert not [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
        actual = model(x)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(after[name].equal(tensor) for name, tensor in before.items())


def test_constant_parts_are_found_inside_defences_and_put_back_after_an_error(model):
    model.eval()
    defended = rd.EarlyState(rd.EntropyReduction(model), state=8)
    own = model.encoder, model.head

    def interrupted():
        with constant_parts(defended):
            assert model.encoder is not own[0]
            assert not [m for m in defended.modules() if isinstance(m, nn.BatchNorm2d)]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (model.encoder, model.head) == own


def test_a_compiled_resnet_keeps_its_own_parts(monkeypatch):
    model = trained_resnet()
    monkeypatch.setattr(model, "_compiled_call_impl", object())
    own = model.blocks
    with constant_parts(model):
        assert model.blocks is own


def test_the_search_of_an_attack_goes_without_norms_and_the_judgement_with_them():
    model = trained_resnet()
    norms = []

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            norms.append(any(isinstance(m, nn.BatchNorm2d) for m in self.modules()))
            return self.inner(x)

    x, y = torch.rand(2, 3, 32, 32, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    predictor = Watched()
    result = rd.PGD(rd.Linf(8 / 255), steps=2, step_size=2 / 255, seed=0)(rd.Direct(predictor), x, y)
    assert norms == [False, False, True]
    with torch.no_grad():
        assert torch.equal(result.logits, predictor(result.images))
