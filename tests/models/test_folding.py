"""Folded copies compute the same function of their input and are made once per set of weights."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.models.kernels.folding import folded


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
    encoder, head = model.inference_parts()
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


def changes():
    """Ways in which the weights of encoder and head come to differ, each a function of the model."""

    def optimizer_step(model, **options):
        model.requires_grad_(True)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        torch.optim.SGD(model.parameters(), lr=0.1, **options).step()

    def load_other_weights(model):
        other = {name: t + 0.1 if t.is_floating_point() else t for name, t in model.state_dict().items()}
        model.load_state_dict(other)

    def update_statistics(model):
        model.train()(torch.rand(4, 3, 8, 8, dtype=torch.float64))
        model.eval()

    def write_through_numpy(model):
        model.encoder.stem[0].weight.detach().numpy()[:] += 0.1

    def replace_the_normalisation(model):
        model.encoder.normalize = nn.Hardtanh(0.25, 0.75)

    return {
        "an optimizer step": optimizer_step,
        "a fused optimizer step": lambda model: optimizer_step(model, fused=True),
        "load_state_dict": load_other_weights,
        "batch statistics": update_statistics,
        "a write to .data": lambda model: model.head.linear.bias.data.add_(1.0),
        "a write through NumPy": write_through_numpy,
        "a replaced layer": replace_the_normalisation,
        "another precision": lambda model: model.float(),
    }


@pytest.mark.parametrize("change", changes().values(), ids=changes().keys())
def test_copies_are_made_once_and_again_after(model, change):
    model.eval()
    before = model.inference_parts()
    assert all(a is b for a, b in zip(model.inference_parts(), before, strict=True))
    change(model)
    encoder, head = after = model.inference_parts()
    assert after != before
    x = torch.rand(2, 3, 8, 8, dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        f, z = model.begin(x)
        maps = f.unpack(f(z))
        atol = 1e-12 if x.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(encoder(x), model.encoder(x), rtol=0, atol=atol)
        torch.testing.assert_close(head(maps), model.head(maps), rtol=0, atol=atol)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_a_copied_model_folds_its_own_weights(model, copied):
    model.eval()
    own = model.inference_parts()
    other = copied(model)
    assert other.inference_parts()[0] is not own[0]
    with torch.no_grad():
        other.head.linear.bias.add_(1.0)
    torch.testing.assert_close(other.inference_parts()[1].linear.bias, own[1].linear.bias + 1)
    assert model.inference_parts()[1] is own[1]


def test_threads_that_share_a_model_get_correct_copies(model):
    model.eval().requires_grad_(False)
    x = torch.rand(1, 3, 8, 8, dtype=torch.float64)
    with ThreadPoolExecutor(4) as pool:
        for shift in range(3):
            model.encoder.stem[1].bias.fill_(shift)
            expected = model.encoder(x)
            for encoder, _ in pool.map(lambda _: model.inference_parts(), range(8)):
                torch.testing.assert_close(encoder(x), expected, rtol=0, atol=1e-12)


def test_a_hook_registered_later_is_called(model):
    model.eval().inference_parts()
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    rd.EntropyReduction(model, every=8, steps=2)(torch.rand(1, 3, 8, 8, dtype=torch.float64))
    assert len(calls) == 1 + 2 + 1  # the received image, two updates, the purified image


def test_copies_folded_in_inference_mode_can_be_differentiated(model):
    with torch.inference_mode():
        encoder, _ = model.eval().inference_parts()
    x = torch.rand(1, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(x).sum(), x)
    assert gradient.abs().max() > 0
