"""Images: what it holds, and what it refuses."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from robustdeq.data import Images

CLASSES = ("a", "b", "c")


def make(n=5):
    pixels = torch.arange(n * 12, dtype=torch.uint8).reshape(n, 1, 3, 4)
    return Images(pixels=pixels, labels=torch.arange(n) % 3, classes=CLASSES)


def test_length_is_the_number_of_images():
    assert len(make(5)) == 5
    assert len(make(0)) == 0


def test_pixels01_are_the_values_divided_by_255_in_the_precision_asked_for():
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    images = Images(pixels=pixels, labels=torch.zeros(1, dtype=torch.int64), classes=("a",))
    for dtype in (torch.float32, torch.float64):
        x = images.pixels01(dtype=dtype)
        assert x.dtype == dtype
        assert torch.equal(x.flatten(), torch.arange(256, dtype=dtype) / 255)
        assert x.min() == 0
        assert x.max() == 1


@pytest.mark.parametrize("which", [[4, 0, 0], torch.tensor([4, 0, 0]), slice(1, 3), torch.arange(5) % 2 == 0])
def test_indices_slices_and_masks_select_pixels_and_labels_alike(which):
    images = make()
    some = images.subset(which)
    assert torch.equal(some.pixels, images.pixels[which])
    assert torch.equal(some.labels, images.labels[which])
    assert some.classes == CLASSES
    assert_close(images.pixels01(which), some.pixels01(), rtol=0, atol=0)


def test_no_indices_select_nothing():
    assert len(make().subset([])) == 0
    assert make().pixels01([]).shape == (0, 1, 3, 4)


def test_a_slice_shares_memory_and_indices_do_not():
    images = make()
    assert images.subset(slice(1, 3)).pixels.data_ptr() == images.pixels[1:].data_ptr()
    images.subset([0]).pixels.zero_()
    assert images.pixels[0].any()


def test_to_moves_pixels_and_labels():
    moved = make().to("meta")
    assert moved.pixels.device == moved.labels.device == torch.device("meta")


@pytest.mark.parametrize("which", [torch.tensor(1), torch.tensor([[0]])])
def test_what_is_not_a_list_of_indices_is_refused(which):
    with pytest.raises(ValueError, match="expected pixels of shape"):
        make().subset(which)


@pytest.mark.parametrize(
    ("pixels", "labels", "error", "message"),
    [
        (torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]), TypeError, "expected uint8 pixels"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 1]).int(), TypeError, "int64 labels"),
        (torch.zeros(2, 3, 3, dtype=torch.uint8), torch.tensor([0, 1]), ValueError, r"\(N, C, H, W\), got \(2, 3, 3\)"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0]), ValueError, "expected 2 labels"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([[0], [1]]), ValueError, "expected 2 labels"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([0, 3]), ValueError, "0 to 3, but there are 3"),
        (torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.tensor([-1, 1]), ValueError, "-1 to 1"),
    ],
)
def test_wrong_types_shapes_and_labels_are_refused(pixels, labels, error, message):
    with pytest.raises(error, match=message):
        Images(pixels=pixels, labels=labels, classes=CLASSES)


def test_repr_says_how_many_and_how_large():
    assert repr(make()) == "Images(5 of 1x3x4, 3 classes, on cpu)"


def test_the_digest_knows_pixels_labels_and_their_order():
    images = make()
    assert images.digest() == make().digest()
    others = [images.subset([1, 0, *range(2, len(images))]), images.subset(slice(0, -1))]
    others.append(replace(images, labels=images.labels.flip(0)))
    assert len({images.digest(), *(other.digest() for other in others)}) == 4
