"""MDEQ's f, its split, and dynamics of the user's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import robustdeq as rd
from robustdeq.models.dynamics import bind


def exact(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def weight_norm(layer):
    v = layer.weight_v
    return layer.weight_g * v / v.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)


def group_norm(y, layer):
    return F.group_norm(y, layer.num_groups, layer.weight, layer.bias, eps=1e-5)


def written_out(dynamics, maps, u, masks=None):
    """METHOD.md's three steps on maps in plain NCHW layout; the flat result."""
    scales = range(len(maps))
    outs = []
    for i, (block, z) in enumerate(zip(dynamics.blocks, maps, strict=True)):
        a = F.relu(group_norm(F.conv2d(z, weight_norm(block.conv1), padding=1), block.gn1))
        b = F.conv2d(a, weight_norm(block.conv2), padding=1)
        if masks is not None:
            b = b * masks[i][:, :, None, None]
        if i == 0:
            b = b + u
        outs.append(group_norm(F.relu(group_norm(b, block.gn2) + z), block.gn3))
    fused = []
    for i in scales:
        total = outs[i]
        for j in scales:
            if j > i:
                convolution, norm = dynamics.up[f"{j}_{i}"]
                term = group_norm(F.conv2d(outs[j], convolution.weight), norm)
                total = total + F.interpolate(term, scale_factor=2 ** (j - i), mode="nearest")
            if j < i:
                layers = [m for m in dynamics.down[f"{j}_{i}"] if not isinstance(m, nn.ReLU)]
                assert len(layers) == 2 * (i - j)
                y = outs[j]
                for k in range(i - j):
                    convolution, norm = layers[2 * k : 2 * k + 2]
                    y = group_norm(F.conv2d(y, convolution.weight, stride=2, padding=1), norm)
                    y = F.relu(y) if k < i - j - 1 else y
                total = total + y
        fused.append(total)
    results = [
        F.group_norm(F.conv2d(F.relu(y), weight_norm(conv)), norm.num_groups, eps=1e-5)
        for y, conv, norm in zip(fused, dynamics.out_conv, dynamics.out_norm, strict=True)
    ]
    return torch.cat([r.flatten(1) for r in results], 1)


@pytest.fixture(params=[1, 2, 3, 4])
def problem(request, make_mdeq, make_images):
    """A model, its f on two images, a random state and another injection."""
    model = make_mdeq(scales=request.param, groups=4)
    with torch.no_grad():
        f, z0 = model.begin(make_images(2, 3, 16, 8))
    generator = torch.Generator().manual_seed(2)
    z = torch.randn(z0.shape, generator=generator, dtype=z0.dtype)
    other_u = torch.randn(f.u.shape, generator=generator, dtype=z0.dtype)
    return model, f, z, other_u


@torch.no_grad()
def test_f_is_the_formula_in_the_method(problem):
    model, f, z, _ = problem
    maps = [m.contiguous() for m in f.unpack(z)]
    exact(f(z), written_out(model.dynamics, maps, f.u.contiguous()))
    assert all(norm.num_groups == 2 for norm in model.dynamics.out_norm)


@torch.no_grad()
def test_f_with_dropout_masks_is_the_formula_in_the_method(make_mdeq, make_images):
    model = make_mdeq(scales=3)
    u = model.encoder(make_images(2, 3, 8, 8))
    masks = [torch.full((2, c), 1.25).double() for c in model.config.channels]
    for mask in masks:
        mask[:, ::3] = 0
    f = model.dynamics.bind(u, masks=masks)
    z = torch.randn(2, f.dynamics.initial(u).shape[1], generator=torch.Generator().manual_seed(0)).double()
    exact(f(z), written_out(model.dynamics, [m.contiguous() for m in f.unpack(z)], u.contiguous(), masks))


@torch.no_grad()
def test_inject_after_prepare_is_f_for_any_injection(problem):
    model, f, z, other_u = problem
    h = f.prepare(z)
    exact(f.inject(h, f.u), f(z))
    exact(f.inject(h, other_u), f.rebind(other_u)(z))
    exact(f.inject(h, other_u), model.dynamics(z, other_u))
    assert (f.inject(h, other_u) - f(z)).abs().max() > 1e-3
    exact(f.inject(h, f.u), f(z))


@torch.no_grad()
def test_prepare_does_not_depend_on_the_injection(problem):
    _, f, z, other_u = problem
    h, h_other = f.prepare(z), f.rebind(other_u).prepare(z)
    assert torch.equal(h.b, h_other.b)
    assert torch.equal(h.z, h_other.z)
    assert all(torch.equal(a, b) for a, b in zip(h.partial, h_other.partial, strict=True))


@torch.no_grad()
def test_the_state_is_the_scales_concatenated_row_major(problem):
    _, f, z, _ = problem
    assert torch.equal(torch.cat([m.flatten(1) for m in f.unpack(z)], 1), z)


class Halve(nn.Module):
    def forward(self, z, u):
        return z / 2 + u


def test_any_module_of_z_and_u_is_dynamics_with_the_trivial_split():
    u, other_u = torch.ones(2, 3), torch.full((2, 3), 2.0)
    f = bind(Halve(), u)
    z = torch.ones(2, 3)
    assert f.prepare(z) is z
    assert torch.equal(f.inject(f.prepare(z), other_u), f.rebind(other_u)(z))
    model = rd.DEQ(encoder=nn.Identity(), dynamics=Halve(), head=nn.Identity(), tol=1e-6)
    torch.testing.assert_close(model(u), 2 * u)


class Maps(nn.Module):
    """A state shaped unlike the injection."""

    def initial(self, u):
        return u.new_zeros(len(u), 2, 3)

    def forward(self, z, u):
        return z / 4 + u[:, None, None]


def test_dynamics_may_define_the_initial_state():
    model = rd.DEQ(encoder=nn.Flatten(0), dynamics=Maps(), head=nn.Flatten(), tol=1e-6)
    x = torch.tensor([[1.0], [2.0]])
    assert model.trajectory(x).states.shape == (8, 2, 2, 3)
    torch.testing.assert_close(model(x), (4 / 3 * x).expand(2, 6))


class Pair(nn.Module):
    def forward(self, x):
        return x, x


def test_an_injection_that_is_no_tensor_needs_dynamics_with_an_initial_state():
    model = rd.DEQ(encoder=Pair(), dynamics=Halve(), head=nn.Identity())
    with pytest.raises(TypeError, match=r"give Halve a method initial\(u\)"):
        model(torch.ones(2, 3))


@pytest.mark.parametrize("size", [8, 1])
def test_groups_of_one_channel_far_from_zero_keep_their_variance(size):
    from robustdeq.models.mdeq.blocks import GroupNorm  # an inner layer

    norm, reference = GroupNorm(8, 8), GroupNorm(8, 8).double()
    y = torch.randn(4, 8, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1000
    expected = F.group_norm(y.float().double(), 8, reference.weight, reference.bias)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = y.float().to(memory_format=layout).requires_grad_()
        torch.testing.assert_close(norm(x).double(), expected, rtol=0, atol=1e-3)
    assert torch.autograd.gradcheck(reference, y[:1].clone().requires_grad_())
