"""Images as PNG in data links, and back."""

from __future__ import annotations

import base64
import binascii
import io
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robustdeq.data import DataError
from robustdeq.data.photos import Photo, read_photo

PNG = "data:image/png;base64,"
MAGNIFIED = 16
"""How much larger than it is a perturbation is shown."""


def png(x: Tensor) -> str:
    """A data link of pixels (C, H, W) in [0, 1]; what is not finite is white."""
    values = x.detach().cpu().nan_to_num(1.0, 1.0, 1.0).clamp(0, 1).mul(255).round().to(torch.uint8)
    return png_of(values.permute(1, 2, 0).numpy())


def png_of(pixels: np.ndarray) -> str:
    """A data link of pixels (H, W, C), uint8."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, format="PNG", optimize=True)
    return PNG + base64.b64encode(buffer.getvalue()).decode()


def magnified(change: Tensor) -> str:
    """A perturbation, magnified; no change is grey."""
    return png(0.5 + MAGNIFIED * change / 2)


def decoded(link: str, shape: tuple[int, int, int]) -> Photo:
    """The image in a data link, at a model's size."""
    try:
        content = base64.b64decode(link.partition("base64,")[2], validate=True)
    except binascii.Error:
        raise DataError("the link does not hold an image: it is cut off, or not base64") from None
    return opened(content, shape, "the image in the link")


def opened(content: bytes, shape: tuple[int, int, int], name: str) -> Photo:
    """The image in a file's content, at a model's size; errors call it by its name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image"
        path.write_bytes(content)
        try:
            return read_photo(path, shape)
        except DataError as error:
            raise DataError(str(error).replace(str(path), name)) from None


def rgb(colours: Iterable[str]) -> np.ndarray:
    """Colours such as #2f7fc1 as rows of bytes."""
    return np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in colours], dtype=np.uint8)
