"""Convolutions by tiles: the same function as the direct sum, with the same gradients of the input."""

import pytest
import torch
import torch.nn.functional as F

from robustdeq.models.kernels import winograd
from robustdeq.models.kernels.convolution import convolve, for_maps
from robustdeq.models.kernels.winograd import TiledKernel, Transform, convolve_tiled, worth_tiling

CL = torch.channels_last
SIZES = [(4, 4), (8, 8), (4, 8), (16, 12)]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def tiled(weight):
    return TiledKernel(weight, Transform(weight))


@pytest.fixture
def always(monkeypatch):
    """Use tiles however few there are."""
    monkeypatch.setattr(winograd, "ROWS", 0)


@pytest.fixture
def products(monkeypatch):
    """The convolutions that were computed by tiles."""
    calls = []
    original = winograd._by_tiles
    monkeypatch.setattr(winograd, "_by_tiles", lambda *args: calls.append(args) or original(*args))
    return calls


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, CL])
@pytest.mark.parametrize("chunk", [1, 1 << 30])
def test_values_and_gradients_are_those_of_the_direct_sum(size, layout, chunk, always, products, monkeypatch):
    monkeypatch.setattr(winograd, "CHUNK", chunk)
    x = draw(3, 5, *size).contiguous(memory_format=layout).requires_grad_()
    weight = draw(6, 5, 3, 3, seed=1).contiguous(memory_format=layout)
    y, expected = convolve_tiled(x, tiled(weight)), F.conv2d(x, weight, padding=1)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert y.is_contiguous(memory_format=CL)
    out = draw(*y.shape, seed=2)
    (ours,), (theirs,) = torch.autograd.grad(y, x, out), torch.autograd.grad(expected, x, out)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert len(products) == 2  # the value, and the gradient


@pytest.mark.parametrize("change", [lambda x: x.mT, lambda x: x[:, :, ::2], lambda x: x[:1].expand(3, -1, -1, -1)])
def test_maps_may_have_any_memory_layout(change, always):
    x, weight = change(draw(3, 5, 8, 8)), draw(6, 5, 3, 3, seed=1)
    y = convolve_tiled(x, tiled(weight))
    torch.testing.assert_close(y, F.conv2d(x, weight, padding=1), rtol=1e-12, atol=1e-12)


def test_an_empty_batch_gives_an_empty_result():
    assert convolve_tiled(draw(0, 4, 8, 8), tiled(draw(6, 4, 3, 3))).shape == (0, 6, 8, 8)


@pytest.mark.parametrize("size", [(4, 4), (4, 8)])
def test_first_and_second_derivatives_are_correct(size, always):
    x, kernel = draw(2, 2, *size).requires_grad_(), tiled(draw(2, 2, 3, 3, seed=1))
    assert torch.autograd.gradcheck(lambda x: convolve_tiled(x, kernel) ** 2, x)
    assert torch.autograd.gradgradcheck(lambda x: convolve_tiled(x, kernel) ** 2, x)


def test_a_kernel_that_is_differentiated_is_convolved_directly(always, products):
    x, weight = draw(2, 4, 4, 4).requires_grad_(), draw(4, 4, 3, 3, seed=1).requires_grad_()
    gradients = torch.autograd.grad(convolve_tiled(x, tiled(weight)).sum(), (x, weight))
    expected = torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), (x, weight))
    torch.testing.assert_close(gradients, expected, rtol=0, atol=0)
    assert not products
    with torch.no_grad():
        convolve_tiled(x, tiled(weight))
    assert len(products) == 1


def test_torch_func_differentiates_through_tiles(always, products):
    x, weight = draw(2, 4, 8, 8), draw(4, 4, 3, 3, seed=1)
    y, pull = torch.func.vjp(lambda x: convolve_tiled(x, tiled(weight)), x)
    assert products
    (expected,) = torch.func.vjp(lambda x: F.conv2d(x, weight, padding=1), x)[1](y)
    torch.testing.assert_close(pull(y)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("c_in", "c_out", "size"), [(64, 320, 16), (320, 64, 16), (128, 640, 8), (256, 1280, 4)])
def test_rounding_errors_are_of_the_size_of_the_direct_sums(c_in, c_out, size, products):
    x, weight = draw(8, c_in, size, size), 0.05 * draw(c_out, c_in, 3, 3, seed=1)
    exact = F.conv2d(x, weight, padding=1)
    x, weight = x.float().contiguous(memory_format=CL), weight.float()
    direct = (F.conv2d(x, weight, padding=1) - exact).norm() / exact.norm()
    ours = (convolve_tiled(x, tiled(weight)) - exact).norm() / exact.norm()
    assert len(products) == 1
    assert ours < max(4 * direct, torch.tensor(1.5e-6))


def test_results_are_batch_independent(always):
    x, kernel = draw(5, 4, 8, 8), tiled(draw(4, 4, 3, 3, seed=1))
    together = convolve_tiled(x, kernel)
    alone = torch.cat([convolve_tiled(row, kernel) for row in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)
    x[2, 0, 3, 3] = torch.nan
    broken = convolve_tiled(x, kernel)
    assert broken[2].isnan().any()
    torch.testing.assert_close(broken[[0, 1, 3, 4]], together[[0, 1, 3, 4]], rtol=1e-13, atol=1e-13)


def test_only_wide_kernels_on_maps_of_whole_tiles_are_tiled():
    wide = draw(320, 64, 3, 3)
    assert worth_tiling(wide, 16, 16)
    assert worth_tiling(wide.float(), 4, 4)
    assert not worth_tiling(wide, 16, 14)
    assert not worth_tiling(wide.bfloat16(), 16, 16)
    assert not worth_tiling(wide.to("meta"), 16, 16)
    assert not worth_tiling(draw(32, 16, 3, 3), 8, 8)  # of mdeq-tiny: measured, no gain
    assert isinstance(for_maps(wide, 16, 16), TiledKernel)
    assert for_maps(wide, 14, 16) is wide


def test_few_tiles_are_convolved_directly(products):
    kernel, x = for_maps(draw(320, 64, 3, 3), 4, 4), draw(winograd.ROWS, 64, 4, 4)
    torch.testing.assert_close(convolve(x[1:], kernel), F.conv2d(x[1:], kernel.weight, padding=1), rtol=0, atol=0)
    assert not products
    convolve(x, kernel)
    assert len(products) == 1


def test_autocast_and_other_precisions_keep_pytorchs_convolution(products):
    weight = draw(64, 64, 3, 3, dtype=torch.float32)
    x = draw(64, 64, 4, 4, dtype=torch.float32)
    with torch.autocast("cpu"):
        assert convolve_tiled(x, tiled(weight)).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="Double"):
        convolve_tiled(x.double(), tiled(weight))
    assert not products
    x.requires_grad_()
    y = convolve_tiled(x, tiled(weight))
    assert len(products) == 1
    with torch.autocast("cpu"):  # products in bfloat16 would lose two digits more than a convolution in it
        torch.autograd.grad(y.sum(), x)
    assert len(products) == 1


def test_a_transform_made_in_inference_mode_can_be_used_with_autograd(always):
    weight = draw(4, 4, 3, 3)
    kernel = tiled(weight)
    with torch.inference_mode():
        convolve_tiled(draw(2, 4, 4, 4), kernel)
    x = draw(2, 4, 4, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(convolve_tiled(x, kernel).sum(), x)
    (expected,) = torch.autograd.grad(F.conv2d(x, weight, padding=1).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)
