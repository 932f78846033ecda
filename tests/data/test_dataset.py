"""Data sets by name."""

import numpy as np
import pytest
import torch
from PIL import Image

from robustdeq.data import DataNotFoundError, Dataset, Images, load_dataset
from tests.data.official import FOLDER, fake_files, write_folder


def images(n=2, shape=(1, 4, 4), classes=("a", "b")):
    return Images(
        pixels=torch.zeros(n, *shape, dtype=torch.uint8), labels=torch.zeros(n, dtype=torch.int64), classes=classes
    )


def test_digits_need_nothing():
    digits = load_dataset("digits")
    assert (digits.name, digits.image_shape, digits.num_classes) == ("digits", (1, 8, 8), 10)
    assert len(digits.validation) == 200
    assert len(load_dataset("digits", held_out=50).validation) == 50


def test_cifar10_is_read_from_root(tmp_path):
    write_folder(tmp_path / FOLDER, fake_files())
    data = load_dataset("cifar10", tmp_path, held_out=5)
    assert (data.image_shape, data.num_classes) == ((3, 32, 32), 10)
    assert [len(data.train), len(data.validation), len(data.test)] == [15, 5, 4]


def test_a_folder_takes_its_own_options(tmp_path):
    for part in ("train", "test"):
        for name in ("a", "b"):
            for i in range(2):
                path = tmp_path / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(path)
    data = load_dataset("folder", str(tmp_path), size=8, channels=1, held_out=2)
    assert data.image_shape == (1, 8, 8)
    assert [len(data.train), len(data.validation), len(data.test)] == [2, 2, 4]


def test_missing_data_are_reported_by_the_loader(tmp_path):
    with pytest.raises(DataNotFoundError, match="no CIFAR-10 at"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-10", "did you mean 'cifar10'"),
        ("digit", "did you mean 'digits'"),
        ("x", "known are cifar10, digits, fol"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(name, message):
    with pytest.raises(ValueError, match=f"unknown data set '{name}'; {message}"):
        load_dataset(name)


def test_a_misspelt_option_is_an_error_with_a_suggestion():
    with pytest.raises(TypeError, match="folder has no option 'chanels'; did you mean 'channels'"):
        load_dataset("folder", "somewhere", chanels=1)
    with pytest.raises(TypeError, match="digits has no option 'size'; known are held_out"):
        load_dataset("digits", size=3)


@pytest.mark.parametrize("other", [{"shape": (3, 4, 4)}, {"shape": (1, 4, 5)}, {"classes": ("b", "a")}])
def test_parts_that_do_not_fit_together_are_refused(other):
    with pytest.raises(ValueError, match="the test images differ from the training images"):
        Dataset(name="x", train=images(), validation=images(), test=images(**other))


def test_an_empty_validation_part_is_allowed():
    assert len(Dataset(name="x", train=images(), validation=images(0), test=images()).validation) == 0
