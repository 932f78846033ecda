"""Models by name: the shipped ones, registered ones, and a user's own as package.module:name."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal, TypeVar, overload

from torch import nn

from robustdeq.host.references import blaming, is_foreign, is_reference, module_of, resolve
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
    "mdeq-thin": (
        "mdeq",
        {
            "channels": (32, 64),
            "expansion": 1,
            "dropout": 0.0,
            "head_channels": (16, 40),
            "final_channels": 448,
            "downsample": 2,
            "encoder_channels": (24,),
            "encoder_blocks": (1, 0),
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
    "resnet-thin": ("resnet", {"widths": (8, 32, 64, 112), "blocks": (0, 2, 2, 1)}),
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
    name: Literal["mdeq-large", "mdeq-small", "mdeq-tiny", "mdeq-thin", "mdeq-nano", "mdeq"], **options: Any
) -> MDEQ: ...
@overload
def create_model(name: Literal["resnet18", "resnet-tiny", "resnet-thin", "resnet"], **options: Any) -> ResNet: ...
@overload
def create_model(name: str, **options: Any) -> Any: ...
def create_model(name: str, **options: Any) -> Any:
    """A model with freshly initialised weights.

    Args:
        name: One of `list_models()`, or package.module:name of a function or class that builds the model. Modules of
            the current folder can be imported.
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
    """A model of a registered architecture, or of package.module:name."""
    builder = _builder(architecture)
    known, any_other = _options(builder)
    for option in options:
        if not any_other and option not in known:
            hint = did_you_mean(option, known, quoted=True) if known else "it takes none"
            raise TypeError(f"{architecture} has no option {option!r}; {hint}")
    if not is_reference(architecture):
        model = builder(**options)
    else:
        with blaming(architecture, "the model cannot be built"):
            model = builder(**options)
    if isinstance(model, Pretrained) and builder not in (MDEQ, ResNet):  # these two set their architecture themselves
        importable = is_foreign(builder) and builder.__module__ != "__main__"
        module = module_of(architecture) if is_reference(architecture) else builder.__module__ if importable else None
        model.architecture = Architecture(architecture, options, module=module)
    return model


def declared_options(name: str) -> list[str]:
    """The options that the builder of a model names."""
    return _options(_builder(_PRESETS[name][0] if name in _PRESETS else name))[0]


def is_registered(architecture: str) -> bool:
    """Whether a builder is registered under this name."""
    return architecture in _BUILDERS


def _builder(architecture: str) -> Callable[..., Any]:
    builder = _BUILDERS.get(architecture)
    if builder is None and is_reference(architecture):
        builder = resolve(architecture)
        if not callable(builder):
            raise ValueError(f"{architecture} is a {type(builder).__name__}; expected a function that builds a model")
    if builder is None:
        raise ValueError(
            f"unknown model {architecture!r}; {did_you_mean(architecture, list_models(), quoted=True)}; one of your "
            "own is named package.module:function, or registered with @robustdeq.register_model before it is used"
        )
    return builder


def preset_of(architecture: str, options: Mapping[str, Any]) -> str:
    """The named model with these sizes, or the name of the architecture if there is none."""
    for name, (kind, preset) in _PRESETS.items():
        if kind == architecture and _sizes(kind, preset) == _sizes(kind, options):
            return name
    return architecture


def _sizes(architecture: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options that are sizes, those that are not given by their defaults."""
    if architecture == "mdeq":
        defaults = {field.name: field.default for field in fields(MDEQConfig)}
    else:
        defaults = {name: p.default for name, p in inspect.signature(ResNet).parameters.items()}
    for name in ("in_channels", "num_classes", "dropout", "mean", "std"):
        defaults.pop(name, None)
    given = {name: options.get(name, default) for name, default in defaults.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _options(builder: Callable[..., Any]) -> tuple[list[str], bool]:
    """The keywords that a builder names, and whether it takes any others."""
    parameters = inspect.signature(builder).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if builder is MDEQ:
        return named + [f.name for f in fields(MDEQConfig)], False
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)
