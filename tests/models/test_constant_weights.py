"""What depends on the weights alone is computed once where they do not change, and anew where they do."""

import pytest
import torch

import robustdeq as rd
from robustdeq.models.blocks import WeightNormConv2d, constant_weights
from robustdeq.models.modes import attacking
from robustdeq.plain import CountedDynamics


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return WeightNormConv2d(64, 320, 3).double()


@pytest.fixture(scope="module")
def wide():
    """Two scales whose block convolutions go by tiles."""
    torch.manual_seed(0)
    sizes = {"channels": (64, 64), "head_channels": (4, 4), "final_channels": 8, "downsample": 2, "dropout": 0.0}
    return rd.create_model("mdeq-small", **sizes).double()


def images(count):
    return torch.rand(count, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_passes_share_the_weight_inside_and_not_outside(layer):
    layer.requires_grad_(False)
    assert layer.weight(8, 8) is not layer.weight(8, 8)
    with constant_weights(layer):
        first = layer.weight(8, 8)
        with constant_weights(layer):
            assert layer.weight(8, 8) is first
        assert layer.weight(8, 8) is first
        assert layer.weight(4, 4) is not first
    assert layer.kept is None


def test_a_changed_parameter_is_seen_even_inside(layer):
    with torch.no_grad(), constant_weights(layer):
        before = layer.weight(8, 8)
        layer.weight_v.mul_(-1)
        after = layer.weight(8, 8)
        assert after is not before
        torch.testing.assert_close(after.weight, -before.weight)


def test_a_differentiable_weight_has_its_own_graph_and_the_shared_transform(layer):
    with constant_weights(layer):
        with torch.no_grad():
            constant = layer.weight(8, 8)
        trained = layer.weight(8, 8)
    assert trained.transform is constant.transform
    assert not constant.weight.requires_grad
    (gradient,) = torch.autograd.grad(trained.weight.sum(), layer.weight_v)
    (expected,) = torch.autograd.grad(layer.weight(8, 8).weight.sum(), layer.weight_v)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


def test_a_weight_kept_in_inference_mode_can_be_differentiated_with(layer):
    layer.requires_grad_(False)
    x = torch.randn(8, 64, 8, 8, dtype=torch.float64)
    with constant_weights(layer):
        with torch.inference_mode():
            layer(x, layer.weight(8, 8))
        x.requires_grad_()
        layer(x, layer.weight(8, 8)).sum().backward()
    assert x.grad is not None


def test_attacks_keep_weights_and_put_everything_back_after_an_error(wide):
    layers = [m for m in wide.modules() if isinstance(m, WeightNormConv2d)]
    with attacking(wide):
        assert all(m.kept is not None for m in layers)
    with pytest.raises(KeyError), attacking(wide):
        raise KeyError
    assert all(m.kept is None for m in layers)


@pytest.mark.parametrize("count", [2, 8])  # directly, and by tiles
def test_f_by_tiles_is_the_plain_one(wide, count):
    x = images(count)
    with attacking(wide), torch.no_grad():
        f, z0 = wide.begin(x)
        z = torch.randn(z0.shape, dtype=z0.dtype, generator=torch.Generator().manual_seed(2))
        plain = CountedDynamics(wide, wide.encoder(x))
        torch.testing.assert_close(f(z), plain(z), rtol=1e-11, atol=1e-11)


def test_constant_parts_predict_alike_and_are_put_back(wide):
    x, own = images(2), (wide.encoder, wide.head)
    with attacking(wide):
        before = wide(x)
        with wide.constant_parts():
            assert wide.encoder is not own[0]
            torch.testing.assert_close(wide(x), before, rtol=1e-10, atol=1e-12)
    with pytest.raises(KeyError), wide.constant_parts():
        raise KeyError
    assert (wide.encoder, wide.head) == own
