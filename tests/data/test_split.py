"""Holding out by class."""

import pytest
import torch

from robustdeq.data.split import stratified_split


def test_every_image_is_either_kept_or_chosen():
    labels = torch.tensor([0, 1, 2, 0, 1, 0, 2, 2, 1, 0])
    kept, chosen = stratified_split(labels, 4, seed=3)
    assert torch.equal(torch.cat([kept, chosen]).sort().values, torch.arange(10))
    assert torch.equal(kept, kept.sort().values)
    assert torch.equal(chosen, chosen.sort().values)


UNEVEN = torch.arange(100).div(10, rounding_mode="floor").clamp(max=6)  # six classes of 10 images, one of 40


@pytest.mark.parametrize("count", [0, 1, 7, 50, 90])
def test_each_class_gives_its_share_to_within_one(count):
    _, chosen = stratified_split(UNEVEN, count, seed=0)
    assert len(chosen) == count
    shares = torch.bincount(UNEVEN[chosen], minlength=7)
    assert (shares - count * torch.bincount(UNEVEN) / 100).abs().max() < 1


def test_no_class_is_held_out_entirely():
    with pytest.raises(ValueError, match="holding out 99 of 100 images would take all 10 of class 0: hold out fewer"):
        stratified_split(UNEVEN, 99, seed=0)


def test_the_split_is_a_function_of_its_arguments_alone():
    labels = torch.arange(60) % 3
    torch.manual_seed(1)
    first = stratified_split(labels, 12, seed=5)[1]
    torch.manual_seed(2)
    assert torch.equal(stratified_split(labels, 12, seed=5)[1], first)
    assert not torch.equal(stratified_split(labels, 12, seed=6)[1], first)


@pytest.mark.parametrize("count", [-1, 4, 9])
def test_more_than_there_are_cannot_be_held_out(count):
    with pytest.raises(ValueError, match=r"held_out must lie in 0\.\.3.*got"):
        stratified_split(torch.tensor([0, 1, 0, 1]), count, seed=0)
