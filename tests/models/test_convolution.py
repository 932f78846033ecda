"""All forms of a convolution have the same values, gradients and second derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from robustdeq.models.kernels.convolution import Pointwise, convolve, for_maps

CL = torch.channels_last


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("size", [(2, 2), (1, 2), (2, 1), (1, 1), (4, 4), (3, 2)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, CL])
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_form_for_maps_of_one_size_is_the_same_convolution(size, layout, kernel):
    x = draw(3, 4, *size).contiguous(memory_format=layout)
    weight = draw(5, 4, kernel, kernel, seed=1).contiguous(memory_format=layout)
    expected = F.conv2d(x, weight, padding=kernel // 2)
    torch.testing.assert_close(convolve(x, for_maps(weight, *size)), expected, rtol=1e-13, atol=1e-13)


def test_only_3x3_kernels_on_maps_of_at_most_2x2_become_matrices():
    weight = draw(5, 4, 3, 3)
    assert for_maps(weight, 2, 2).shape == (4 * 5, 4 * 4)
    assert for_maps(weight, 2, 3) is weight
    assert for_maps(weight[..., :1, :1], 2, 2).ndim == 4


@pytest.mark.parametrize("size", [(2, 2), (4, 4)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_first_and_second_derivatives_are_correct(size, kernel):
    x = draw(2, 3, *size).contiguous(memory_format=CL).requires_grad_()
    weight = draw(2, 3, kernel, kernel, seed=1).requires_grad_()

    def function(x, weight):
        return convolve(x, for_maps(weight, *size))

    assert torch.autograd.gradcheck(function, (x, weight))
    assert torch.autograd.gradgradcheck(function, (x, weight))


def test_results_are_channels_last_if_images_are():
    x = draw(2, 4, 2, 2).contiguous(memory_format=CL)
    for weight in (draw(4, 4, 1, 1), for_maps(draw(4, 4, 3, 3), 2, 2)):
        assert convolve(x, weight).is_contiguous(memory_format=CL)


def test_pointwise_is_a_convolution_with_its_own_weight():
    torch.manual_seed(0)
    layer = Pointwise(3, 4).double()
    x = draw(2, 3, 4, 4).contiguous(memory_format=CL)
    torch.testing.assert_close(layer(x), nn.Conv2d.forward(layer, x), rtol=1e-13, atol=1e-13)
    assert list(layer.state_dict()) == ["weight"]
