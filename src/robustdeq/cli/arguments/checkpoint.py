"""What CKPT names: a predictor, and what is known of the images it is for."""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, SupportsIndex

from torch import nn

from robustdeq.data.cifar10 import CLASSES, ROOT_VARIABLE
from robustdeq.evaluation.run.fingerprint import NotLogitsError, checked_logits
from robustdeq.host import references
from robustdeq.host.references import (
    ReferenceProblem,
    blaming,
    current_folder_importable,
    is_reference,
)
from robustdeq.host.suggestions import did_you_mean
from robustdeq.models import CheckpointError, load
from robustdeq.models.hub import is_on_hub
from robustdeq.models.pretrained import shipped
from robustdeq.threat import L2, Linf, Threat, number

LARGEST_IMAGE = 2**28
"""Numbers of an image: a gigabyte in float32."""
_KNOWN_IMAGES: dict[str, tuple[tuple[int, int, int], tuple[str, ...]]] = {
    "cifar10": ((3, 32, 32), CLASSES),
    "digits": ((1, 8, 8), tuple("0123456789")),
}
"""Image shape and classes of the data sets that are always the same."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A predictor and what is known of the images it is for."""

    name: str
    """CKPT as it was given."""
    predictor: Any
    """Maps pixels to logits; one with states has `trajectory(x)` too."""
    dataset: str | None = None
    """cifar10, digits or folder."""
    eps: float | None = None
    """L-infinity budget that it was trained for."""
    image_shape: tuple[int, int, int] | None = None
    """(C, H, W)."""
    classes: tuple[str, ...] | None = None
    """Name of each label."""
    data_options: dict[str, Any] = field(default_factory=dict)
    """Options of the data set."""
    data_root: str | None = None
    """Folder of the data as it was given to the training; None if it was not."""

    def required(self, what: str) -> Any:
        """The value of a field; if it is not known, an error says how to make it known."""
        value = getattr(self, what)
        if value is None:
            raise CheckpointError(
                f"{self.name} does not say its {what}: give the predictor an attribute metadata = "
                '{"dataset": "cifar10", "eps": 8 / 255, "image_shape": [3, 32, 32], "classes": [...]}'
            )
        return value

    def options_for(self, dataset: str) -> dict[str, Any]:
        """Options to load a data set with; a folder's images are read at the size that the predictor takes."""
        options = dict(self.data_options) if dataset == self.dataset else {}
        if dataset == "folder" and self.image_shape is not None:
            channels, *size = self.image_shape
            return {"size": tuple(size), "channels": channels, **options}
        return options

    def check_logits(self, logits: Any, images: int) -> None:
        """Refuse an answer that does not consist of one logit per image and class."""
        try:
            checked_logits(logits, images)
        except NotLogitsError as error:
            raise CheckpointError(f"{self.name}: {error}") from None
        if self.classes is not None and len(self.classes) != logits.shape[1]:
            raise CheckpointError(
                f"{self.name} gives {logits.shape[1]} logits, but its metadata stand for {len(self.classes)} classes: "
                'metadata["classes"] must name each'
            )


def resolve(ckpt: str, trust: bool | Collection[str] = False) -> Checkpoint:
    """The predictor that CKPT names, its data set and its budget; `trust` as for `robustdeq.load`.

    A folder's config.json says them. A predictor that a function returns says them in an attribute `metadata` with the
    same keys, its own or that of the model inside it.
    """
    if is_reference(ckpt) and not Path(ckpt).exists():
        try:
            predictor = _call(ckpt)
        except ReferenceProblem as error:
            raise CheckpointError(str(error)) from error
    else:
        predictor = _load(ckpt, trust)
    owners = (predictor, getattr(predictor, "base", None))
    metadata: Any = next((found for owner in owners if (found := getattr(owner, "metadata", None))), {})
    return _describe(ckpt, predictor, metadata)


def dataset_of(checkpoint: Checkpoint, given: str | None) -> str:
    """The data set that --data names, or that the checkpoint was made for."""
    dataset = given or checkpoint.dataset
    if dataset is None:
        raise ValueError(f"{checkpoint.name} does not say what data it is for: give --data cifar10, digits or folder")
    return dataset


def data_root_of(checkpoint: Checkpoint, dataset: str, given: Path | None, say: Callable[[str], None]) -> Path | None:
    """The folder of the data: what --data-root names, or else where the checkpoint was trained; says which one it is.

    None means where the data set lies by default. The environment variable of CIFAR-10 counts as given.
    """
    if dataset == "digits":  # embedded
        return None
    variable = os.environ.get(ROOT_VARIABLE) if dataset == "cifar10" else None
    remembered = checkpoint.data_root if dataset == checkpoint.dataset else None
    if given is not None:
        say(f"data: {dataset} in {given}")
    elif variable:
        say(f"data: {dataset} in {variable} ({ROOT_VARIABLE})")
    elif remembered is not None and Path(remembered).exists():
        say(f"data: {dataset} in {remembered}, as the checkpoint was trained")
        return Path(remembered)
    elif remembered is not None:
        say(
            f"data: {checkpoint.name} was trained on {dataset} in {remembered}, which is not here; say where it is by "
            "--data-root"
        )
    return given


def budget_of(checkpoint: Checkpoint, eps: str | None, norm: Literal["Linf", "L2"]) -> Threat:
    """The ball of --eps and --norm, by default that of the checkpoint."""
    if eps is None and (checkpoint.eps is None or norm == "L2"):
        raise ValueError(
            f"{checkpoint.name} does not say for which {norm} radius it is meant: give --eps, such as 8/255"
        )
    radius = checkpoint.required("eps") if eps is None else number(eps, "--eps")
    return {"Linf": Linf, "L2": L2}[norm](radius)


def _load(ckpt: str, trust: bool | Collection[str]) -> Any:
    folder = Path(ckpt)
    if folder.is_dir() and not (folder / "config.json").exists():
        inside = [name for name in ("best", "last") if (folder / name / "config.json").is_file()]
        if inside:
            raise CheckpointError(f"{ckpt} is the folder of a training run; did you mean {folder / inside[0]}?")
    known = shipped()
    if not folder.exists() and ckpt not in known and not is_on_hub(ckpt):
        beside = [p.name for p in folder.parent.glob("[!.]*") if p.is_dir()]
        names = [*known, *(os.path.join(os.path.dirname(ckpt), name) for name in beside)]
        if hint := did_you_mean(ckpt, names, ""):
            raise CheckpointError(f"no checkpoint {ckpt}; {hint}")
    return load(ckpt, trust=trust)


def _call(ckpt: str) -> Any:
    """The predictor that a function returns."""
    function = references.resolve(ckpt)
    if not callable(function):
        raise CheckpointError(f"{ckpt} is a {type(function).__name__}; expected a function that returns a predictor")
    with suppress(ValueError):  # a function that is not written in Python may have no signature
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            expected = "expected a function that returns a predictor and needs no argument"
            raise CheckpointError(f"{ckpt}: {error}; {expected}") from None
    with current_folder_importable(), blaming(ckpt, f"{ckpt.rpartition(':')[2]} failed"):
        predictor = function()
    if isinstance(predictor, type) or not callable(predictor):
        raise CheckpointError(
            f"{ckpt} returned a {type(predictor).__name__}; expected a predictor: a DEQ, or a callable from pixels in "
            "[0, 1] to logits"
        )
    return predictor.eval() if isinstance(predictor, nn.Module) else predictor


def _describe(ckpt: str, predictor: Any, metadata: Any) -> Checkpoint:
    def check(right: bool, what: str, expected: str, value: Any) -> None:
        if not right:
            raise CheckpointError(f"{ckpt}: {what} must be {expected}, got {value!r}")

    check(isinstance(metadata, Mapping), "metadata", "a dictionary", metadata)
    options = metadata.get("data_options") or {}
    check(isinstance(options, Mapping), "data_options", "a dictionary", options)
    dataset, eps = metadata.get("dataset"), metadata.get("eps")
    shape, classes = _KNOWN_IMAGES.get(str(dataset), (None, None))
    if (size := metadata.get("image_shape")) is not None:
        shape = tuple(size) if isinstance(size, Iterable) else ()
        right = len(shape) == 3 and all(isinstance(n, SupportsIndex) and operator.index(n) > 0 for n in shape)
        right = right and math.prod(map(operator.index, shape)) <= LARGEST_IMAGE
        check(
            right,
            "image_shape",
            "three whole numbers (channels, height, width), 2^28 values at most, such as [3, 32, 32]",
            size,
        )
    if (names := metadata.get("classes")) is not None:
        check(isinstance(names, Iterable) and not isinstance(names, str), "classes", "a list of names", names)
        classes = tuple(map(str, names))
    root = metadata.get("data_root")
    check(root is None or isinstance(root, str), "data_root", "the path of a folder", root)
    return Checkpoint(
        name=ckpt,
        predictor=predictor,
        dataset=dataset,
        eps=None if eps is None else number(eps, f"{ckpt}: eps"),
        image_shape=shape,
        classes=classes,
        data_options=dict(options),
        data_root=root,
    )
