"""Wrong arguments are refused with one clear sentence."""

import pytest
import torch

from robustdeq.attacks import FABT, PGD, Direct, Square
from robustdeq.threat import L2, Linf

from .victims import Linear, images

X, Y = images(2, shape=(1, 3, 3)), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X * 255, Y, r"pixels must lie in \[0, 1\], got \[.*\]; divide 8-bit images by 255"),
        (X - 1, Y, r"pixels must lie in \[0, 1\]"),
        ((X * 255).to(torch.uint8), Y, r"expected floating-point pixels in \[0, 1\], got torch.uint8"),
        (X[:0], Y[:0], "at least one image"),
        (X, Y[:1], r"one label for each of the 2 images, got labels of shape \(1,\)"),
        (X, Y[:, None], "one label for each"),
        (X, Y.int(), r"labels as a tensor of int64, got torch.int32; convert with y.long\(\)"),
        # Where annotated types are checked at every call, that check speaks first, and names the parameter.
        (X, [0, 0], r"labels as a tensor of int64, got list; convert with torch.tensor\(y\)|parameter 'y'"),
        (X, Y - 1, "labels count from 0, got -1"),
    ],
)
def test_images_and_labels_are_checked(x, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PGD(Linf(0.1))(Direct(Linear()), x, y)


def test_each_image_needs_one_index():
    with pytest.raises(ValueError, match="one index for each of the 2 images, got 3"):
        PGD(Linf(0.1))(Direct(Linear()), X, Y, index=[1, 2, 3])


@pytest.mark.parametrize("start", [X[:1], X.float()], ids=["shape", "precision"])
def test_a_start_has_the_shape_and_precision_of_the_images(start):
    with pytest.raises(ValueError, match="start must be like the images"):
        PGD(Linf(0.1))(Direct(Linear()), X, Y, start=start)


@pytest.mark.parametrize("start", [torch.nan, 2.0])
def test_a_start_has_finite_pixels_in_the_pixel_range(start):
    with pytest.raises(ValueError, match="start must lie inside"):
        PGD(L2(100.0))(Direct(Linear()), X, Y, start=torch.full_like(X, start))


@pytest.mark.parametrize("attack", [FABT(Linf(0.1)), Square(Linf(0.1))], ids=str)
def test_an_attack_that_chooses_its_start_refuses_one(attack):
    with pytest.raises(ValueError, match="chooses where it starts"):
        attack(Direct(Linear()), X, Y, start=X)


def test_square_says_what_images_it_can_attack():
    with pytest.raises(ValueError, match="Square needs images"):
        Square(Linf(0.1))(Direct(Linear()), X, Y)
