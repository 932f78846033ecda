"""The models that the explorer offers, and their images; everything is loaded once, when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from robustdeq.app.case import Case
from robustdeq.app.pictures import decoded, opened
from robustdeq.data import DataError, DataNotFoundError, Images, load_dataset
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.host.suggestions import did_you_mean

PHOTOS = {"flower": "flower.jpg", "temple": "china.jpg"}
"""Photographs that come with scikit-learn: something to look at where a model's own data are not at hand."""

KINDS = ("test", "photo", "data")
"""What stands before the colon of an image that is no file."""
FIRST = 50


def is_file(image: str) -> bool:
    """Whether a case's image is the path of a file, in which there may be colons too."""
    return bool(image) and image.partition(":")[0] not in KINDS


class Known(Protocol):
    """A predictor, and what is known of the images it is for."""

    name: str
    predictor: Any
    dataset: str | None
    eps: float | None
    image_shape: tuple[int, int, int] | None
    classes: tuple[str, ...] | None

    def required(self, what: str) -> Any:
        """The value of a field, or an error that says how to make it known."""

    def options_for(self, dataset: str) -> dict[str, Any]:
        """Options to load a data set with."""

    def check_logits(self, logits: Any, images: int) -> None:
        """Refuse an answer that does not consist of one logit per image and class."""


@dataclass
class Catalogue:
    """What may be opened: these models, their data below `data_root`, and files only where `files` allows them."""

    models: Sequence[str]
    resolve: Callable[[str], Any]
    """Opens a model by its name."""
    data_root: Path | None = None
    flags: Sequence[str] = ()
    """Flags that the explorer was started with, which its command lines repeat."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The attack and the defence of one's own that a case may name: those that the explorer was started with."""
    files: bool = False
    """Whether a case may name an image file: on the command line, not from a page."""
    _opened: dict[str, Any] = field(default_factory=dict)
    _data: dict[str, Images | str] = field(default_factory=dict)
    _first: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, name: str) -> Any:
        """The model of this name, which must be one of those offered."""
        if name not in self.models:
            raise ValueError(f"no model {name} was chosen when the explorer started; {did_you_mean(name, self.models)}")
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self.resolve(name)
        return self._opened[name]

    def check_code(self, case: Case) -> None:
        """Refuse a case that names code which was not named when the explorer started."""
        for name in case.own:
            if (reference := getattr(case, name)) != self.code.get(name):
                raise ValueError(f"{reference} was not named when the explorer started: give --{name} {reference}")

    def test_images(self, known: Known) -> Images | str:
        """The test images of a model's data set, or a sentence that says why there are none."""
        with self._lock:
            if known.name not in self._data:
                self._data[known.name] = self._load(known)
        return self._data[known.name]

    def _load(self, known: Known) -> Images | str:
        if known.dataset is None:
            return f"{known.name} does not say what data it is for: upload an image"
        try:
            return load_dataset(known.dataset, self.data_root, **known.options_for(known.dataset)).test
        except (DataNotFoundError, DataError, ValueError, OSError) as error:
            return f"no test images ({str(error).split(': ')[0]}): give --data-root, or upload an image"

    def first_image(self, known: Known) -> str:
        """What is shown if nothing was chosen: a photograph, or a test image that is neither easy nor hopeless.

        Of the first `FIRST` test images that are right, the one a quarter up in the order of their margins.
        """
        test = self.test_images(known)
        if isinstance(test, str):
            return "photo:flower"
        if known.name not in self._first:
            some = test.subset(slice(0, FIRST))
            with torch.no_grad():
                top = known.predictor(Subject(known.predictor).pixels(some.pixels)).softmax(-1).cpu().topk(2)
            margin = (top.values[:, 0] - top.values[:, 1]).where(top.indices[:, 0] == some.labels, torch.inf)
            right = int(margin.isfinite().sum())
            self._first[known.name] = int(margin.nan_to_num(torch.inf).argsort()[right // 4])
        return f"test:{self._first[known.name]}"

    def image(self, known: Known, source: str) -> tuple[Tensor, int | None, list[str]]:
        """Pixels (1, C, H, W) in [0, 1], the label if it is known, and what was done to a file."""
        shape: tuple[int, int, int] = known.required("image_shape")
        kind, _, rest = source.partition(":")
        if kind == "test":
            test = self.test_images(known)
            if isinstance(test, str):
                raise DataNotFoundError(test)
            if not rest.isdecimal() or int(rest) >= len(test):
                raise ValueError(f"there are test images 0 to {len(test) - 1}, got {rest!r}")
            return test.pixels01([int(rest)]), int(test.labels[int(rest)]), []
        if kind == "photo":
            if rest not in PHOTOS:
                raise ValueError(f"no photograph {rest!r}; there are {', '.join(PHOTOS)}")
            content = (resources.files("sklearn.datasets") / "images" / PHOTOS[rest]).read_bytes()
            photo = opened(content, shape, rest)
        elif kind == "data":
            photo = decoded(source, shape)
        elif self.files:
            if not Path(source).is_file():
                raise DataNotFoundError(f"no file {source}; an image is test:K, photo:NAME or a file")
            photo = opened(Path(source).read_bytes(), shape, source)
        else:
            raise ValueError(f"no image {source!r}: choose a test image, draw one, or upload a file")
        return photo.pixels[None].to(torch.float32) / 255, None, list(photo.notes)
