"""Image files of any kind, read at the size that a model takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from robustdeq.data.errors import DataError, DataNotFoundError

MAX_MEGAPIXELS = 89
"""Pillow's limit, which protects against files that unpack to more than memory holds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Photo:
    """An image at a model's size, and what was done to the content of its file."""

    pixels: Tensor
    """(C, H, W), uint8."""
    notes: tuple[str, ...]


def read_photo(path: str | Path, image_shape: tuple[int, int, int]) -> Photo:
    """Reads an image file as a person sees it, at a model's size.

    The first frame is turned as its EXIF orientation says, laid over white where it is transparent, and converted to
    the model's colours. If its proportions differ from the model's, the largest centred part is cut out; if its size
    differs, it is resized with antialiasing. `image_shape` is (C, H, W), C being 1 or 3.
    """
    channels, height, width = image_shape
    if channels not in (1, 3):
        raise ValueError(f"the model takes images of {channels} channels; files have 1 or 3")
    notes: list[str] = []
    upright = open_upright(Path(path), notes)
    with _naming(Path(path)):
        image = _sized(_coloured(upright, channels, Path(path), notes), height, width, notes)
        pixels = np.asarray(image, dtype=np.uint8).reshape(height, width, channels)
    return Photo(pixels=torch.from_numpy(pixels.copy()).permute(2, 0, 1).contiguous(), notes=tuple(notes))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Every error inside becomes one that names the file: decoders of damaged files raise anything."""
    try:
        yield
    except (DataError, DataNotFoundError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{path} has more than {MAX_MEGAPIXELS} million pixels: scale it down first") from None
    except UnidentifiedImageError:
        raise DataError(f"{path} is not an image, or of a kind that cannot be read") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        said = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be read as an image: {said}") from error


def eight_bits(image: Image.Image, path: Path) -> Image.Image:
    """Converts 16-bit greyscale to 8 bits (Pillow's own conversion clips at 255); other images stay as they are."""
    if image.mode == "F":
        raise DataError(f"{path} has floating-point pixels of unknown range: convert it to 8 bits")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise DataError(f"{path} has pixels of more than 16 bits: convert it to 8")
    return Image.fromarray(np.rint(values / 257).astype(np.uint8))


def open_upright(path: Path, notes: list[str] | None = None) -> Image.Image:
    """The first frame of a file, decoded and turned as its EXIF orientation says; `notes` receives what was done."""
    notes = [] if notes is None else notes
    with _naming(path):
        if not path.exists():
            raise DataNotFoundError(f"no file {path}")
        if path.is_dir():
            raise DataError(f"{path} is a folder: name the images in it, such as {path / '*.png'}")
        if not path.is_file():
            raise DataError(f"{path} is not a regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata; what matters is whether the pixels can be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                if image.format != "MPO" and getattr(image, "is_animated", False):  # phones save a photo's depth as MPO
                    notes.append("first of several frames")
                if image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9):
                    notes.append("turned as its EXIF orientation says")
                image.load()  # which turns TIFF files itself
                return ImageOps.exif_transpose(image)


def _coloured(image: Image.Image, channels: int, path: Path, notes: list[str]) -> Image.Image:
    image = eight_bits(image, path)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            notes.append("transparency over white")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    colours = image.convert("RGB")
    if channels == 3:
        return colours
    red, green, blue = np.moveaxis(np.asarray(colours), -1, 0)
    if (red != green).any() or (red != blue).any():
        notes.append("colour to grey")
    return image.convert("L")


def _sized(image: Image.Image, height: int, width: int, notes: list[str]) -> Image.Image:
    if image.size == (width, height):
        return image
    # The largest part of the model's proportions; at least a pixel, however long and thin the image is.
    cut_width = max(1, min(image.width, round(image.height * width / height)))
    cut_height = max(1, min(image.height, round(image.width * height / width)))
    if (cut_width, cut_height) != image.size:
        notes.append(f"centre {cut_width}x{cut_height} of {image.width}x{image.height}")
        left, top = (image.width - cut_width) // 2, (image.height - cut_height) // 2
        image = image.crop((left, top, left + cut_width, top + cut_height))
    if image.size != (width, height):
        notes.append(f"resized from {cut_width}x{cut_height} to {width}x{height}")
    return image.resize((width, height), Image.Resampling.BILINEAR)  # Pillow's bilinear is antialiased
