"""Effective weights are computed once while they are constant, and again after a parameter has changed."""

import copy
import pickle

import pytest
import torch

import robustdeq as rd
from robustdeq.models.kernels import WeightNormConv2d, constant_weights, winograd
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
    return rd.create_model("mdeq-small", solver=rd.Broyden(max_steps=4), **sizes).double()


def images(count):
    return torch.rand(count, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_passes_share_the_weight_inside_a_scope_only(layer):
    layer.requires_grad_(False)
    assert layer.weight(8, 8) is not layer.weight(8, 8)
    with constant_weights(layer):
        first = layer.weight(8, 8)
        with constant_weights(layer):
            assert layer.weight(8, 8) is first
        assert layer.weight(8, 8) is first
        assert layer.weight(4, 4) is not first
    assert layer.kept is None


def test_sizes_share_one_transform(layer):
    layer.requires_grad_(False)
    with constant_weights(layer):
        assert layer.weight(8, 8).transform is layer.weight(16, 16).transform


def test_a_changed_parameter_is_noticed_inside_a_scope(layer):
    with torch.no_grad(), constant_weights(layer):
        before = layer.weight(8, 8)
        layer.weight_v.mul_(-1)
        after = layer.weight(8, 8)
        assert after is not before
        torch.testing.assert_close(after.weight, -before.weight)


def test_a_replaced_parameter_is_noticed_inside_a_scope(layer):
    """It may have the memory address and the version of the parameter before."""
    with torch.no_grad(), constant_weights(layer):
        for k in range(1, 9):
            given = {name: torch.full_like(p, k) for name, p in layer.named_parameters()}
            weight = torch.func.functional_call(_Weight(layer), {f"layer.{n}": p for n, p in given.items()}, ())
            torch.testing.assert_close(weight, torch.full_like(weight, k / (64 * 9) ** 0.5))
            del given
            layer.weight_v.data = torch.full_like(layer.weight_v, float(k))
            torch.testing.assert_close(layer.weight(8, 8).weight[0, 0, 0, 0], layer.weight_g[0, 0, 0, 0] / 24)


class _Weight(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self):
        return self.layer.weight(8, 8).weight


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_made_inside_a_scope_keep_nothing(layer, copied):
    with torch.no_grad(), constant_weights(layer):
        layer.weight(8, 8)
        other = copied(layer)
    assert (other.open_scopes, other.kept) == (0, None)
    with torch.no_grad():
        assert other.weight(8, 8) is not other.weight(8, 8)


def test_a_differentiable_weight_has_its_own_graph(layer):
    with constant_weights(layer):
        with torch.no_grad():
            constant = layer.weight(8, 8)
        trained = layer.weight(8, 8)
    assert not constant.weight.requires_grad
    (gradient,) = torch.autograd.grad(trained.weight.sum(), layer.weight_v)
    (expected,) = torch.autograd.grad(layer.weight(8, 8).weight.sum(), layer.weight_v)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


def test_a_weight_kept_in_inference_mode_can_be_used_with_autograd(layer):
    layer.requires_grad_(False)
    x = torch.randn(8, 64, 8, 8, dtype=torch.float64)
    with constant_weights(layer):
        with torch.inference_mode():
            layer(x, layer.weight(8, 8))
        x.requires_grad_()
        layer(x, layer.weight(8, 8)).sum().backward()
    assert x.grad is not None


def test_attacks_keep_weights_and_drop_them_after_an_error(wide):
    layers = [m for m in wide.modules() if isinstance(m, WeightNormConv2d)]
    with attacking(wide):
        assert all(m.open_scopes == 1 for m in layers)
    with pytest.raises(KeyError), attacking(wide):
        raise KeyError
    assert all((m.open_scopes, m.kept) == (0, None) for m in layers)


@pytest.mark.parametrize("count", [2, 8])  # directly, and by tiles
def test_f_with_tiles_is_the_plain_f(wide, count):
    x = images(count)
    with attacking(wide), torch.no_grad():
        f, z0 = wide.begin(x)
        z = torch.randn(z0.shape, dtype=z0.dtype, generator=torch.Generator().manual_seed(2))
        plain = CountedDynamics(wide, wide.encoder(x))
        torch.testing.assert_close(f(z), plain(z), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("gradient", [rd.Phantom(2), rd.Implicit(), rd.Neumann(2), rd.ThroughSolver()], ids=repr)
def test_every_gradient_policy_is_the_same_with_tiles(wide, gradient, monkeypatch):
    x = images(8).requires_grad_()
    monkeypatch.setattr(wide, "gradient", gradient)
    monkeypatch.setattr(wide, "tol", 1e-12)

    def input_gradient():
        with attacking(wide):
            return torch.autograd.grad(wide(x).logsumexp(1).sum(), x)[0]

    ours = input_gradient()
    monkeypatch.setattr(winograd, "ROWS", 10**9)
    expected = input_gradient()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9 * expected.abs().max().item())
