"""Models by name."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal, TypeVar, overload

from torch import nn

from robustdeq.host.suggestions import did_you_mean
from robustdeq.models.mdeq import MDEQ, MDEQConfig
from robustdeq.models.pretrained import Architecture, Pretrained
from robustdeq.models.resnet import ResNet

_BUILDERS: dict[str, Callable[..., Any]] = {"mdeq": MDEQ, "resnet": ResNet}

_PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "mdeq-large": ("mdeq", {"channels": (32, 64, 128, 256)}),
    "mdeq-small": (
        "mdeq",
        {"channels": (16, 32, 64, 128), "head_channels": (8, 16, 32, 64), "final_channels": 512},
    ),
    "mdeq-tiny": (
        "mdeq",
        {
            "channels": (16, 32, 64),
            "expansion": 2,
            "groups": 4,
            "dropout": 0.1,
            "head_channels": (8, 16, 32),
            "final_channels": 128,
            "downsample": 2,
        },
    ),
    "mdeq-nano": (
        "mdeq",
        {
            "in_channels": 1,
            "channels": (16, 32),
            "expansion": 2,
            "groups": 4,
            "dropout": 0.0,
            "head_channels": (8, 16),
            "final_channels": 64,
            "downsample": 1,
        },
    ),
    "resnet18": ("resnet", {"widths": (64, 128, 256, 512)}),
    "resnet-tiny": ("resnet", {"widths": (24, 48, 96), "blocks": (2, 2, 2)}),
}

B = TypeVar("B", bound=Callable[..., nn.Module])


def register_model(name: str) -> Callable[[B], B]:
    """Registers the decorated function, which builds a model, for `create_model(name)` and for checkpoints.

    Its options must be keywords with JSON values, and it should return a `DEQ`.
    """
    if not isinstance(name, str):
        raise TypeError('give the model a name: @robustdeq.register_model("my-deq")')

    def register(builder: B) -> B:
        if name in _BUILDERS or name in _PRESETS:
            raise ValueError(f"a model named {name!r} is registered already")
        _BUILDERS[name] = builder
        return builder

    return register


def list_models(pattern: str = "*") -> list[str]:
    """The names that `create_model` knows, optionally only those that match a pattern such as "mdeq-*"."""
    return sorted(fnmatch.filter([*_PRESETS, *_BUILDERS], pattern))


@overload
def create_model(
    name: Literal["mdeq-large", "mdeq-small", "mdeq-tiny", "mdeq-nano", "mdeq"], **options: Any
) -> MDEQ: ...
@overload
def create_model(name: Literal["resnet18", "resnet-tiny", "resnet"], **options: Any) -> ResNet: ...
@overload
def create_model(name: str, **options: Any) -> Any: ...
def create_model(name: str, **options: Any) -> Any:
    """A model with freshly initialised weights.

    Args:
        name: One of `list_models()`.
        options: Options that replace those of the named model, such as num_classes=100 or solver=Broyden(max_steps=12).
    """
    if name not in _PRESETS:
        return build(name, **options)
    architecture, preset = _PRESETS[name]
    model = build(architecture, **{**preset, **options})
    if preset_of(model.architecture.name, model.architecture.options) == name:  # not if an option replaced the sizes
        model.architecture = replace(model.architecture, preset=name)
    return model


def build(architecture: str, **options: Any) -> Any:
    """A model of a registered architecture."""
    builder = _BUILDERS.get(architecture)
    if builder is None:
        raise ValueError(
            f"unknown model {architecture!r}; {did_you_mean(architecture, list_models(), quoted=True)}; "
            "one of your own must be registered with @robustdeq.register_model before it is used"
        )
    known = _options(builder)
    for option in options:
        if known is not None and option not in known:
            raise TypeError(f"{architecture} has no option {option!r}; {did_you_mean(option, known, quoted=True)}")
    model = builder(**options)
    if isinstance(model, Pretrained) and builder not in (MDEQ, ResNet):  # these two set their architecture themselves
        model.architecture = Architecture(architecture, options)
    return model


def preset_of(architecture: str, options: Mapping[str, Any]) -> str:
    """The named model with these sizes, or the name of the architecture if there is none."""
    for name, (kind, preset) in _PRESETS.items():
        sizes = [key for key in ("channels", "widths") if key in preset]
        if kind == architecture and all([*options.get(key, ())] == [*preset[key]] for key in sizes):
            return name
    return architecture


def _options(builder: Callable[..., Any]) -> list[str] | None:
    """The keywords that a builder takes, or None if it takes any."""
    parameters = inspect.signature(builder).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if builder is MDEQ:
        return named + [f.name for f in fields(MDEQConfig)]
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters) else named
