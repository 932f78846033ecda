"""The paper's baseline."""

import pytest
import torch
import torch.nn.functional as F

import robustdeq as rd


@pytest.fixture(scope="module")
def resnet():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return rd.ResNet(num_classes=4, in_channels=2, widths=(4, 6, 8), blocks=(1, 2, 1)).double().eval()


def written_out(model, x):
    """He et al. 2016 for small images, with plain calls."""

    def norm(y, bn):
        return F.batch_norm(y, bn.running_mean, bn.running_var, bn.weight, bn.bias)

    y = F.relu(norm(F.conv2d(x, model.conv1.weight, padding=1), model.bn1))
    for block, stride in zip(model.blocks, (1, 2, 1, 2), strict=True):
        a = F.relu(norm(F.conv2d(y, block.conv1.weight, stride=stride, padding=1), block.bn1))
        b = norm(F.conv2d(a, block.conv2.weight, padding=1), block.bn2)
        if not isinstance(block.shortcut, torch.nn.Identity):
            y = norm(F.conv2d(y, block.shortcut[0].weight, stride=stride), block.shortcut[1])
        y = F.relu(b + y)
    return model.linear(F.adaptive_avg_pool2d(y, 1).flatten(1))


@torch.no_grad()
def test_logits_are_the_written_out_formula(resnet, make_images):
    x = make_images(3, 2, 8, 12)
    torch.testing.assert_close(resnet(x), written_out(resnet, x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (32, 16)])
def test_any_image_size_works(resnet, make_images, size):
    with torch.no_grad():
        assert resnet(make_images(2, 2, *size)).shape == (2, 4)


def test_pixels_get_the_gradient_of_finite_differences_in_eval_mode(resnet, make_images):
    x = make_images(1, 2, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(resnet, x)


def test_logits_are_batch_independent_in_eval_mode(resnet, make_images):
    x = make_images(3, 2, 8, 8)
    with torch.no_grad():
        alone = torch.cat([resnet(image[None]) for image in x])
        torch.testing.assert_close(resnet(x), alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 3, 8, 8), torch.float64, r"shape \(batch, 2, height, width\), got \(2, 3, 8, 8\)"),
        ((2, 8, 8), torch.float64, r"shape \(batch, 2, height, width\), got \(2, 8, 8\)"),
        ((0, 2, 8, 8), torch.float64, "at least one image"),
        ((1, 2, 8, 8), torch.uint8, "floating-point pixels"),
        ((1, 2, 8, 8), torch.float32, "the images are torch.float32"),
    ],
)
def test_bad_images_are_refused(resnet, shape, dtype, message):
    with pytest.raises((ValueError, TypeError), match=message):
        resnet(torch.zeros(shape, dtype=dtype))


def test_every_stage_needs_a_width_and_a_number_of_blocks():
    with pytest.raises(ValueError, match="one entry per stage"):
        rd.ResNet(widths=(4, 8), blocks=(1,))
