"""Random crops and mirror images."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from robustdeq.data import RandomCropFlip


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(n=16, channels=3, height=9, width=7, dtype=torch.uint8):
    return torch.randint(1, 256, (n, channels, height, width), generator=generator(5)).to(dtype)


def one_by_one(augment, pixels, draws):
    """What torchvision's RandomCrop(size, padding) and RandomHorizontalFlip do to each image."""
    height, width = pixels.shape[2:]
    out = []
    for image, top, left, mirrored in zip(pixels, *draws.T.tolist(), strict=True):
        padded = F.pad(image, (augment.padding,) * 4, value=0)
        crop = padded[:, top : top + height, left : left + width]
        out.append(crop.flip(-1) if mirrored else crop)
    return torch.stack(out)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "augment", [RandomCropFlip(), RandomCropFlip(padding=2, flip=False), RandomCropFlip(padding=0)]
)
def test_a_batch_equals_the_images_one_by_one_under_the_same_draws(augment, dtype):
    pixels = batch(dtype=dtype)
    found = augment(pixels, generator(1))
    assert found.dtype == dtype
    assert torch.equal(found, one_by_one(augment, pixels, augment.draw(len(pixels), generator(1))))
    assert not torch.equal(found, pixels)


def test_the_batch_given_is_left_as_it_was():
    pixels = batch()
    RandomCropFlip()(pixels, generator())
    assert torch.equal(pixels, batch())


def test_nothing_to_do_is_the_identity_and_draws_nothing():
    source = generator()
    before = source.get_state()
    pixels = batch()
    assert RandomCropFlip(padding=0, flip=False)(pixels, source) is pixels
    assert torch.equal(source.get_state(), before)


def test_the_generator_alone_decides():
    pixels = batch()
    torch.manual_seed(1)
    first = RandomCropFlip()(pixels, generator(3))
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(RandomCropFlip()(pixels, generator(3)), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(RandomCropFlip()(pixels, generator(4)), first)


def test_offsets_are_uniform_and_half_of_the_images_mirrored():
    top, left, mirrored = RandomCropFlip(padding=4).draw(9000, generator()).T
    joint = torch.zeros(9, 9)
    joint.index_put_((top, left), torch.ones(9000), accumulate=True)
    expected = 9000 / 81
    assert ((joint - expected) ** 2 / expected).sum() < 140  # chi-square with 80 degrees of freedom: p < 1e-4
    assert abs(mirrored.double().mean() - 0.5) < 0.02
    offcentre = top > 4
    assert abs(mirrored[offcentre].double().mean() - 0.5) < 0.03


def test_a_share_of_the_draws_gives_that_share_of_the_batch():
    augment, pixels = RandomCropFlip(), batch(10)
    draws = augment.draw(10, generator(2))
    whole = augment.apply(pixels, draws)
    assert torch.equal(augment.apply(pixels[5:], draws[5:]), whole[5:])


def test_an_empty_batch_stays_empty():
    assert RandomCropFlip()(batch(0), generator()).shape == (0, 3, 9, 7)


def test_the_object_is_its_configuration():
    assert RandomCropFlip() == RandomCropFlip(padding=4, flip=True)
    assert repr(RandomCropFlip(2)) == "RandomCropFlip(padding=2, flip=True)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        RandomCropFlip().padding = 3


def test_negative_padding_and_single_images_are_refused():
    with pytest.raises(ValueError, match="padding must be >= 0, got -1"):
        RandomCropFlip(padding=-1)
    with pytest.raises(ValueError, match="expected 3 images"):
        RandomCropFlip()(batch()[0], generator())
