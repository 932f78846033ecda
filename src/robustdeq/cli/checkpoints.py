"""CKPT on the command line: a folder, a shipped checkpoint, or a function that returns a predictor."""

from __future__ import annotations

import difflib
import importlib
import inspect
import operator
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from robustdeq.data.cifar10 import CLASSES
from robustdeq.evaluation.run.fingerprint import NotLogitsError, checked_logits
from robustdeq.models import CheckpointError, load
from robustdeq.models.pretrained import shipped
from robustdeq.threat import number

HELP = "a checkpoint folder, a shipped checkpoint's name, or package.module:function that returns a predictor"

_FUNCTION = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")

_KNOWN_IMAGES: dict[str, tuple[tuple[int, int, int], tuple[str, ...]]] = {
    "cifar10": ((3, 32, 32), CLASSES),
    "digits": ((1, 8, 8), tuple("0123456789")),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A predictor and what is known of the images it is for."""

    name: str
    """CKPT as it was given."""
    predictor: Any
    """Pixels to logits; one with states has `trajectory(x)` too."""
    dataset: str | None = None
    """cifar10, digits or folder."""
    eps: float | None = None
    """The L-infinity budget it was trained for."""
    image_shape: tuple[int, int, int] | None = None
    """(C, H, W)."""
    classes: tuple[str, ...] | None = None
    """What label k means is classes[k]."""
    held_out: int | None = None
    """Images of the training set that were kept for validation."""
    data_options: dict[str, Any] = field(default_factory=dict)
    """Options of the data set."""

    def required(self, what: str) -> Any:
        """A field that must be known; where it is not, how to make it known."""
        value = getattr(self, what)
        if value is None:
            raise CheckpointError(
                f"{self.name} does not say its {what}: give the predictor an attribute metadata = "
                '{"dataset": "cifar10", "eps": 8 / 255, "image_shape": [3, 32, 32], "classes": [...]}'
            )
        return value

    def options_for(self, dataset: str) -> dict[str, Any]:
        """Options of a data set: its own, and of a folder the size and channels that the predictor takes."""
        options = dict(self.data_options) if dataset == self.dataset else {}
        if dataset == "folder" and self.image_shape is not None:
            channels, *size = self.image_shape
            return {"size": tuple(size), "channels": channels, **options}
        return options

    def check_logits(self, logits: Any, images: int) -> None:
        """Refuse what the predictor answered to so many images if it is not one logit for each class."""
        try:
            checked_logits(logits, images)
        except NotLogitsError as error:
            raise CheckpointError(f"{self.name}: {error}") from None
        if self.classes is not None and len(self.classes) != logits.shape[1]:
            raise CheckpointError(
                f"{self.name} gives {logits.shape[1]} logits, but its metadata stand for {len(self.classes)} classes: "
                'metadata["classes"] must name each'
            )


@contextmanager
def blaming(ckpt: str, what: str) -> Iterator[None]:
    """Whatever goes wrong in a user's own code is one line that names CKPT."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise CheckpointError(f"{ckpt}: {what} ({type(error).__name__}{said and f': {said}'})") from error


def resolve(ckpt: str) -> Checkpoint:
    """The predictor that CKPT names, and its data set and budget.

    A folder's config.json says them; the predictor that a function returns, in an attribute `metadata` of the same
    keys (its own, or that of the model inside it).
    """
    match = _FUNCTION.fullmatch(ckpt)
    if match and not Path(ckpt).exists():
        predictor = _call(ckpt, match["module"], match["function"])
    else:
        predictor = _load(ckpt)
    return _describe(ckpt, predictor)


def defence_budget(eps: float | None) -> dict[str, Any]:
    """Radius and step of the entropy reduction: the budget eps and a quarter of it, as 8/255 and 2/255 are.

    A predictor that does not say its eps has the defaults.
    """
    return {} if eps is None else {"radius": eps, "step_size": eps / 4}


def _load(ckpt: str) -> Any:
    folder = Path(ckpt)
    if folder.is_dir() and not (folder / "config.json").exists():
        inside = [name for name in ("best", "last") if (folder / name / "config.json").is_file()]
        if inside:
            raise CheckpointError(f"{ckpt} is the folder of a training run; did you mean {folder / inside[0]}?")
    known = shipped()
    if not folder.exists() and ckpt not in known:
        close = difflib.get_close_matches(ckpt, [*known, *_neighbours(folder)], n=3)
        if close:
            raise CheckpointError(f"no checkpoint {ckpt}; did you mean {' or '.join(close)}?")
    return load(ckpt)


def _neighbours(folder: Path) -> list[str]:
    """Folders beside a missing one, as the user would have written them."""
    parent = folder.parent
    if not parent.is_dir():
        return []
    beside = [p for p in parent.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return sorted(os.path.join(os.path.dirname(folder), p.name) for p in beside)


def _call(ckpt: str, module: str, function: str) -> Any:
    with _importing_from_here():
        owner: Any = _imported(ckpt, module)
        for part in function.split("."):
            if not hasattr(owner, part):
                close = difflib.get_close_matches(part, dir(owner), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise CheckpointError(f"{ckpt}: {module} has no {part}{hint}")
            owner = getattr(owner, part)
        if not callable(owner):
            raise CheckpointError(f"{ckpt} is a {type(owner).__name__}; expected a function that returns a predictor")
        _check_needs_nothing(ckpt, owner)
        with blaming(ckpt, f"{function} failed"):
            predictor = owner()
    if isinstance(predictor, type) or not callable(predictor):
        raise CheckpointError(
            f"{ckpt} returned a {type(predictor).__name__}; expected a predictor: a DEQ, or a callable from pixels in "
            "[0, 1] to logits"
        )
    return predictor.eval() if isinstance(predictor, nn.Module) else predictor


def _imported(ckpt: str, module: str) -> Any:
    try:
        with blaming(ckpt, f"cannot import {module}"):
            return importlib.import_module(module)
    except CheckpointError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        hint = f"run the command where {module.split('.')[0]} lies, or install it"
        raise CheckpointError(f"{error}; {hint}") from error.__cause__


def _check_needs_nothing(ckpt: str, function: Any) -> None:
    """Refuse a function that cannot be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python may not say
        return
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [p.name for p in parameters if p.kind in plain and p.default is p.empty]
    if needed:
        raise CheckpointError(
            f"{ckpt} needs {' and '.join(needed)}; expected a function that returns a predictor and needs no argument"
        )


@contextmanager
def _importing_from_here() -> Iterator[None]:
    """Modules of the current folder can be imported, as with `python -m`."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _describe(ckpt: str, predictor: Any) -> Checkpoint:
    metadata = _metadata(ckpt, predictor)
    dataset = metadata.get("dataset")
    shape, classes = _KNOWN_IMAGES.get(str(dataset), (None, None))
    if metadata.get("image_shape") is not None:
        shape = _image_shape(ckpt, metadata["image_shape"])
    if metadata.get("classes") is not None:
        classes = _class_names(ckpt, metadata["classes"])
    eps = metadata.get("eps")
    return Checkpoint(
        name=ckpt,
        predictor=predictor,
        dataset=dataset,
        eps=None if eps is None else number(eps, f"{ckpt}: eps"),
        image_shape=shape,
        classes=classes,
        held_out=metadata.get("held_out"),
        data_options=dict(_mapping(ckpt, "data_options", metadata.get("data_options") or {})),
    )


def _metadata(ckpt: str, predictor: Any) -> Mapping[str, Any]:
    """The predictor's own, or that of the model at its bottom."""
    for owner in (predictor, getattr(predictor, "base", None)):
        metadata = getattr(owner, "metadata", None)
        if metadata:
            return _mapping(ckpt, "metadata", metadata)
    return {}


def _mapping(ckpt: str, what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{ckpt}: {what} must be a dictionary, got {value!r}")
    return value


def _image_shape(ckpt: str, value: Any) -> tuple[int, int, int]:
    try:
        channels, height, width = map(operator.index, value)
    except (TypeError, ValueError):
        channels = height = width = 0
    if min(channels, height, width) < 1:
        raise CheckpointError(
            f"{ckpt}: image_shape must be three whole numbers (channels, height, width) such as [3, 32, 32], "
            f"got {value!r}"
        )
    return channels, height, width


def _class_names(ckpt: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise CheckpointError(f"{ckpt}: classes must be a list of names, got {value!r}")
    return tuple(map(str, value))
