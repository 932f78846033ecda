"""Data sets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustdeq.data.cifar10 import load_cifar10
from robustdeq.data.digits import load_digits
from robustdeq.data.folder import load_folder
from robustdeq.data.images import Images, Splits
from robustdeq.host.suggestions import did_you_mean

_LOADERS: dict[str, Callable[..., Splits]] = {"cifar10": load_cifar10, "digits": load_digits, "folder": load_folder}


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Images to train on, to choose checkpoints and settings by, and to report on."""

    name: str
    train: Images
    validation: Images
    """Held out of the official training set; every choice that looks at images looks at these."""
    test: Images

    def __post_init__(self) -> None:
        for part in ("validation", "test"):
            images: Images = getattr(self, part)
            if images.pixels.shape[1:] != self.train.pixels.shape[1:] or images.classes != self.train.classes:
                raise ValueError(f"the {part} images differ from the training images in shape or classes")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of one image."""
        channels, height, width = self.train.pixels.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.train.classes)


def load_dataset(name: str, root: str | Path | None = None, *, held_out: int | None = None, **options: Any) -> Dataset:
    """Loads a data set into memory: "cifar10", "digits" (embedded) or "folder" (your own images).

    `root` is the folder of its files, if it has any; see `load_cifar10` and `load_folder`. `held_out` training images
    become validation images, by default as many as the data set itself chooses. Further options are those of the data
    set, e.g. size=32 for "folder".
    """
    loader = _LOADERS.get(name)
    if loader is None:
        raise ValueError(f"unknown data set {name!r}; {did_you_mean(name, _LOADERS, quoted=True)}")
    known = [option for option in inspect.signature(loader).parameters if option != "root"]
    for option in options:
        if option not in known:
            raise TypeError(f"{name} has no option {option!r}; {did_you_mean(option, known, quoted=True)}")
    if held_out is not None:
        options["held_out"] = held_out
    train, validation, test = loader(root, **options)
    return Dataset(name=name, train=train, validation=validation, test=test)
