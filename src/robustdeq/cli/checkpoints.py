"""CKPT on the command line: a folder, a shipped checkpoint, or a function that returns a predictor."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from robustdeq.data.cifar10 import CLASSES
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
        try:
            owner: Any = importlib.import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"{ckpt}: cannot import {module} ({error}); run the command where {module.split('.')[0]} lies, "
                "or install it"
            ) from error
        for part in function.split("."):
            if not hasattr(owner, part):
                close = difflib.get_close_matches(part, dir(owner), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise CheckpointError(f"{ckpt}: {module} has no {part}{hint}")
            owner = getattr(owner, part)
        if not callable(owner):
            raise CheckpointError(f"{ckpt} is a {type(owner).__name__}; expected a function that returns a predictor")
        predictor = owner()
    if isinstance(predictor, type) or not callable(predictor):
        raise CheckpointError(
            f"{ckpt} returned a {type(predictor).__name__}; expected a predictor: a DEQ, or a callable from pixels in "
            "[0, 1] to logits"
        )
    return predictor.eval() if isinstance(predictor, nn.Module) else predictor


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
    metadata = _metadata(predictor)
    dataset = metadata.get("dataset")
    shape, classes = _KNOWN_IMAGES.get(str(dataset), (None, None))
    if "image_shape" in metadata:
        channels, height, width = metadata["image_shape"]
        shape = (int(channels), int(height), int(width))
    if "classes" in metadata:
        classes = tuple(map(str, metadata["classes"]))
    eps = metadata.get("eps")
    return Checkpoint(
        name=ckpt,
        predictor=predictor,
        dataset=dataset,
        eps=None if eps is None else number(eps, f"{ckpt}: eps"),
        image_shape=shape,
        classes=classes,
        held_out=metadata.get("held_out"),
        data_options=dict(metadata.get("data_options", {})),
    )


def _metadata(predictor: Any) -> dict[str, Any]:
    """The predictor's own, or that of the model at its bottom."""
    for owner in (predictor, getattr(predictor, "base", None)):
        metadata = getattr(owner, "metadata", None)
        if metadata:
            return dict(metadata)
    return {}
