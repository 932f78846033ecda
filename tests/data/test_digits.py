"""The embedded digits."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as embedded

from robustdeq.data import load_digits


def rows(*parts):
    return sorted(
        bytes(p) + bytes([k]) for part in parts for p, k in zip(part.pixels.numpy(), part.labels, strict=True)
    )


def test_sizes_types_and_classes():
    train, validation, test = load_digits()
    assert [len(p) for p in (train, validation, test)] == [1200, 200, 397]
    assert train.pixels.shape[1:] == (1, 8, 8)
    assert train.classes == tuple("0123456789")


def test_values_0_to_16_become_0_to_255_rounded():
    train, validation, test = load_digits()
    expected = {round(v * 255 / 16) for v in range(17)}
    found = set(torch.cat([p.pixels.flatten() for p in (train, validation, test)]).tolist())
    assert found == expected
    assert {0, 255} < found


@pytest.mark.parametrize("held_out", [0, 1, 200, 700])
def test_the_three_parts_are_the_whole_set_once_each(held_out):
    digits = embedded()
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)
    whole = sorted(bytes(p) + bytes([k]) for p, k in zip(pixels, digits.target.astype(np.uint8), strict=True))
    parts = load_digits(held_out=held_out)
    assert len(parts[1]) == held_out
    assert rows(*parts) == whole


def test_the_test_set_does_not_depend_on_what_is_held_out():
    assert torch.equal(load_digits(held_out=0)[2].pixels, load_digits(held_out=300)[2].pixels)


def test_every_part_has_all_classes_in_equal_measure():
    for part in load_digits():
        counts = torch.bincount(part.labels, minlength=10)
        assert counts.max() - counts.min() <= max(2, 0.06 * len(part) / 10)


def test_the_split_is_always_the_same():
    first, second = load_digits(), load_digits()
    torch.manual_seed(99)
    for a, b, c in zip(first, second, load_digits(), strict=True):
        assert torch.equal(a.pixels, b.pixels)
        assert torch.equal(a.pixels, c.pixels)
    # a changed split would make older results incomparable
    assert first[2].labels[:12].tolist() == [0, 4, 1, 2, 6, 7, 5, 6, 9, 1, 7, 5]
    assert first[1].labels[:12].tolist() == [2, 3, 4, 9, 8, 1, 3, 7, 4, 7, 0, 2]


def test_more_than_the_training_set_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"0\.\.1399: there are 1400 training images, got 1400"):
        load_digits(held_out=1400)
