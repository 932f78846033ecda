"""Images of your own: root/{train,validation,test}/<class>/<image>."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from robustdeq.data.errors import DataError, DataNotFoundError
from robustdeq.data.images import Images, Splits
from robustdeq.data.photos import eight_bits, open_upright
from robustdeq.data.split import stratified_split

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
SEED = 0


def load_folder(
    root: str | Path | None = None,
    *,
    held_out: int | None = None,
    size: int | tuple[int, int] | None = None,
    channels: Literal[1, 3] = 3,
) -> Splits:
    """Images from root/train/<class>/ and root/test/<class>/; the classes are train's folders, sorted by name.

    Within each part the images are in a fixed random order, so that the first hundred are not all of one class.

    Args:
        root: Folder that holds train/ and test/.
        held_out: Number of validation images, taken from each class of train in proportion and always the same; a
            tenth by default. If there is a folder root/validation, its images are used and this must not be given.
        size: Height and width to resize to (a number for both); without it all images must have the same size.
        channels: 3 for RGB, 1 for greyscale; images are converted, transparency is dropped.
    """
    if root is None:
        raise ValueError('the "folder" data set needs root: the folder that holds train/ and test/')
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    wanted = (size, size) if isinstance(size, int) else size
    if wanted is not None and min(wanted) < 1:
        raise ValueError(f"size must be positive, got {size}")
    folder = Path(root)
    classes = _classes(folder, "train")
    files = {part: _files(folder, part, classes) for part in ("train", "test")}
    if (folder / "validation").is_dir():
        files["validation"] = _files(folder, "validation", classes)
        if held_out is not None:
            raise ValueError(f"{folder} has its own validation images: held_out={held_out} would not be used")
    if wanted is None:
        first = open_upright(files["train"][0][0])
        wanted = (first.height, first.width)
    parts = {part: _read(found, classes, wanted, channels, resize=size is not None) for part, found in files.items()}
    train, test = parts["train"], parts["test"]
    if "validation" in parts:
        return train, parts["validation"], test
    count = max(1, len(train) // 10) if held_out is None else held_out
    kept, chosen = stratified_split(train.labels, count, seed=SEED)
    return train.subset(kept), train.subset(chosen), test


def _classes(root: Path, part: str) -> tuple[str, ...]:
    names = sorted(p.name for p in (root / part).glob("[!.]*") if p.is_dir())
    if not names:
        raise DataNotFoundError(
            f"no images at {root / part}: expected one folder per class in {root / 'train'} and {root / 'test'}, "
            f"such as {root / 'train' / 'cat' / '1.png'}"
        )
    return tuple(names)


def _files(root: Path, part: str, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """A part's files and labels, in a fixed random order."""
    unknown = sorted(set(_classes(root, part)) - set(classes))
    if unknown:
        raise DataError(f"{root / part} has classes that {root / 'train'} does not have: {', '.join(unknown)}")
    found: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        folder = root / part / name
        images = sorted(p for p in folder.glob("[!.]*") if p.suffix.lower() in SUFFIXES)
        if not images and folder.is_dir():
            raise DataNotFoundError(f"{folder} holds no images ({' '.join(sorted(SUFFIXES))})")
        found += [(path, label) for path in images]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(SEED))
    return [found[i] for i in order.tolist()]


def _read(
    files: list[tuple[Path, int]], classes: tuple[str, ...], size: tuple[int, int], channels: int, *, resize: bool
) -> Images:
    pixels = np.empty((len(files), *size, channels), dtype=np.uint8)
    for row, (path, _) in zip(pixels, files, strict=True):
        plain = _convert(open_upright(path), channels, path)
        if resize:
            plain = plain.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        elif (plain.height, plain.width) != size:
            raise DataError(
                f"{path} is {plain.height}x{plain.width}, others are {size[0]}x{size[1]}: "
                "give size=... to resize all of them"
            )
        row[:] = np.asarray(plain).reshape(*size, channels)
    labels = torch.tensor([label for _, label in files], dtype=torch.int64)
    return Images(pixels=torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), labels=labels, classes=classes)


def _convert(image: Image.Image, channels: int, path: Path) -> Image.Image:
    image = eight_bits(image, path)
    if image.mode == "P":
        image = image.convert("RGBA")  # keeps Pillow from warning about palettes with transparency
    return image.convert("L" if channels == 1 else "RGB")
