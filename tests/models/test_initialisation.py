"""Initial weights, as in docs/method.md, section 1."""

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.models.kernels import WeightNormConv2d, untiled


@pytest.fixture(scope="module")
def fresh():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return rd.create_model("mdeq-small")


def test_plain_convolutions_are_normal_with_std_001(fresh):
    convs = [m for m in fresh.modules() if isinstance(m, nn.Conv2d)]
    weights = torch.cat([m.weight.detach().flatten() for m in convs])
    biases = torch.cat([m.bias.detach().flatten() for m in convs if m.bias is not None])
    for values in (weights, biases):
        assert len(values) > 500
        assert values.std().item() == pytest.approx(0.01, rel=0.1)
        assert abs(values.mean().item()) < 0.05 * 0.01 + 0.04 / len(values) ** 0.5
    for m in convs:
        if m.weight.numel() > 500:
            assert m.weight.std().item() == pytest.approx(0.01, rel=0.15)


def test_weight_normed_convolutions_keep_pytorchs_default_and_g_is_the_norm_of_v(fresh):
    layers = [m for m in fresh.modules() if isinstance(m, WeightNormConv2d)]
    assert len(layers) == 3 * 4
    for m in layers:
        bound = 1 / m.weight_v[0].numel() ** 0.5  # kaiming_uniform_(a=sqrt(5)) is U(-bound, bound), bound^2 = 1/fan_in
        assert m.weight_v.abs().max() <= bound
        assert m.weight_v.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        torch.testing.assert_close(m.weight_g.flatten(), m.weight_v.flatten(1).norm(dim=1))
        torch.testing.assert_close(untiled(m.weight(4, 4)), m.weight_v)


def test_norms_start_at_one_and_zero(fresh):
    affine = [m for m in fresh.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm) and m.weight is not None]
    assert affine
    for m in affine:
        assert (m.weight == 1).all()
        assert (m.bias == 0).all()
    for m in fresh.modules():
        if isinstance(m, nn.BatchNorm2d):
            assert m.momentum == 0.1
            assert (m.running_mean == 0).all()
            assert (m.running_var == 1).all()
        if isinstance(m, nn.GroupNorm):
            assert m.eps == 1e-5


def test_the_linear_layer_keeps_pytorchs_default(fresh):
    bound = 1 / fresh.head.linear.in_features**0.5
    assert fresh.head.linear.weight.abs().max() <= bound
    assert fresh.head.linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_the_norms_named_in_the_method_have_no_affine_parameters(fresh):
    assert all(m.weight is None and m.num_groups == 4 for m in fresh.dynamics.out_norm)
    for block in fresh.head.blocks:
        assert not any(norm.affine for norm in (block.bn1, block.bn2, block.bn3))
        assert block.shortcut[1].affine
