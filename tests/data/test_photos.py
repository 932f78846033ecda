"""Image files of any kind, at a model's size."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from robustdeq.data import DataError, DataNotFoundError
from robustdeq.data.photos import read_photo

RGB, GREY = (3, 4, 4), (1, 4, 4)


def pixels(photo):
    return photo.pixels.permute(1, 2, 0).numpy()


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)


def test_an_image_of_the_model_s_size_is_untouched(tmp_path, image):
    Image.fromarray(image).save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png", RGB)
    assert photo.pixels.dtype == torch.uint8
    assert np.array_equal(pixels(photo), image)
    assert photo.notes == ()


def test_greyscale_becomes_three_equal_colours(tmp_path, image):
    Image.fromarray(image[:, :, 0]).save(tmp_path / "a.png")
    assert np.array_equal(pixels(read_photo(tmp_path / "a.png", RGB)), image[:, :, :1].repeat(3, 2))
    assert np.array_equal(pixels(read_photo(tmp_path / "a.png", GREY)), image[:, :, :1])


def test_colour_for_a_grey_model_is_said(tmp_path, image):
    Image.fromarray(image).save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png", GREY)
    assert photo.notes == ("colour to grey",)
    expected = image @ np.array([299, 587, 114]) / 1000  # ITU-R 601
    assert np.abs(pixels(photo)[:, :, 0] - expected).max() <= 1


def test_transparency_is_seen_over_white(tmp_path, image):
    alpha = np.full((4, 4, 1), 255, np.uint8)
    Image.fromarray(np.concatenate([image, alpha], 2)).save(tmp_path / "opaque.png")
    opaque = read_photo(tmp_path / "opaque.png", RGB)
    assert np.array_equal(pixels(opaque), image)
    assert opaque.notes == ()
    alpha[:2] = 0
    Image.fromarray(np.concatenate([image, alpha], 2)).save(tmp_path / "half.png")
    half = read_photo(tmp_path / "half.png", RGB)
    assert (pixels(half)[:2] == 255).all()
    assert np.array_equal(pixels(half)[2:], image[2:])
    assert half.notes == ("transparency over white",)


def test_palettes_are_their_colours(tmp_path):
    indexed = Image.fromarray(np.tile(np.array([[0, 1]], np.uint8), (4, 2)), "L").convert("P")
    indexed.putpalette([255, 0, 0, 0, 0, 255])
    indexed.save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png", RGB)
    assert pixels(photo)[0, :2].tolist() == [[255, 0, 0], [0, 0, 255]]
    indexed.save(tmp_path / "b.gif", transparency=1)
    assert pixels(read_photo(tmp_path / "b.gif", RGB))[0, :2].tolist() == [[255, 0, 0], [255, 255, 255]]


def test_sixteen_bits_keep_their_brightness(tmp_path):
    Image.fromarray(np.linspace(0, 65535, 16).reshape(4, 4).astype(np.uint16)).save(tmp_path / "a.png")
    assert pixels(read_photo(tmp_path / "a.png", GREY)).ravel().tolist() == list(range(0, 256, 17))


def test_of_an_animation_the_first_frame_and_said_so(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    photo = read_photo(tmp_path / "a.gif", RGB)
    assert (pixels(photo) == [255, 0, 0]).all()
    assert photo.notes == ("first of several frames",)


@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
def test_the_exif_orientation_is_obeyed_and_said(tmp_path, suffix):
    grey = np.zeros((4, 4), np.uint8)
    grey[:2] = 255  # bright above; orientation 6 is shown a quarter turn clockwise: bright on the right
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(grey).save(tmp_path / f"a.{suffix}", exif=exif)
    photo = read_photo(tmp_path / f"a.{suffix}", GREY)
    assert (pixels(photo)[:, 2:] > 200).all()
    assert (pixels(photo)[:, :2] < 50).all()
    assert photo.notes == ("turned as its EXIF orientation says",)


def test_a_wide_image_gives_its_centre(tmp_path):
    grey = np.zeros((4, 12), np.uint8)
    grey[:, 4:8] = 200
    Image.fromarray(grey).save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png", GREY)
    assert (pixels(photo) == 200).all()
    assert photo.notes == ("centre 4x4 of 12x4",)


def test_shrinking_averages_instead_of_picking_pixels(tmp_path):
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)  # picking would give black or white
    Image.fromarray(board).save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png", GREY)
    assert np.abs(pixels(photo).astype(int) - 127.5).max() < 2
    assert photo.notes == ("resized from 64x64 to 4x4",)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 3)])
def test_any_shape_ends_at_the_model_s_size(tmp_path, size):
    Image.new("RGB", size, (10, 20, 30)).save(tmp_path / "a.png")
    assert (pixels(read_photo(tmp_path / "a.png", RGB)) == [10, 20, 30]).all()


def png_header(width, height):
    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 50_000])
def test_a_file_that_would_fill_the_memory_is_refused_before_it_is_decoded(tmp_path, side):
    (tmp_path / "bomb.png").write_bytes(png_header(side, side))
    with pytest.raises(DataError, match="more than 89 million pixels: scale it down"):
        read_photo(tmp_path / "bomb.png", RGB)


def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path, image):
    Image.fromarray(np.tile(image, (20, 20, 1))).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    for name, content, message in (
        ("cut.png", whole[: len(whole) // 2], "cannot be read as an image"),
        ("text.png", b"hello", "is not an image"),
        ("empty.png", b"", "is not an image"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message) as caught:
            read_photo(tmp_path / name, RGB)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(DataNotFoundError, match="no file"):
        read_photo(tmp_path / "missing.png", RGB)
    with pytest.raises(DataError, match="is a folder"):
        read_photo(tmp_path, RGB)
