"""Loading checkpoints: a folder with config.json and model.safetensors, in which nothing is executable."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from robustdeq.host.files import read_regular
from robustdeq.host.references import import_module, is_reference, module_of, resolve
from robustdeq.models.checks import MOST_STEPS
from robustdeq.models.deq import DEQ
from robustdeq.models.hub import HubError, fetch, is_on_hub
from robustdeq.models.pretrained import (
    CODE,
    CONFIG,
    DIGEST,
    FORMAT,
    VERSION,
    WEIGHTS,
    CheckpointError,
    made_here,
    shipped,
    weights_digest,
)
from robustdeq.models.registry import build, is_registered
from robustdeq.models.resnet import ResNet
from robustdeq.models.settings import decode, modules_in


def load(
    path: str | Path,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    trust: bool | Collection[str] = False,
) -> DEQ | ResNet:
    """The model of a checkpoint, in eval mode.

    Args:
        path: A folder written by `save_pretrained`, the name of a checkpoint that is shipped with robustdeq, or
            hf:user/name for one on the Hugging Face Hub (hf:user/name@revision for a certain one).
        device: Device of the model; the CPU if not given.
        dtype: Precision of the model; as stored if not given.
        trust: Whether to run code outside robustdeq that the checkpoint names, or the modules that it may name. Without
            it, such a checkpoint is loaded only by the user and in the folder that saved it.
    """
    folder = _find(path)
    config = _read_config(folder)
    weights, config = _read_weights(folder, config)
    _check_trust(folder, config, trust)
    if config.get("architecture") in ("mdeq", "resnet"):
        with torch.device("meta"):  # sizes that do not fit the weights are refused before anything is allocated
            _check_shapes(_build(folder, config), weights, folder)
    model = _build(folder, config)
    _check_shapes(model, weights, folder)
    _fill(model, weights)
    model.metadata = config.get("metadata", {})
    return model.to(device=device, dtype=dtype).eval()


def _find(path: str | Path) -> Path:
    folder = Path(path)
    if folder.is_dir():
        return folder
    if is_on_hub(path):
        try:
            return fetch(path, [CONFIG, WEIGHTS])  # nothing else: weights never bring code along
        except HubError as error:
            raise CheckpointError(str(error)) from error
    names = shipped()
    if str(path) in names:
        return names[str(path)]
    if folder.exists():
        raise CheckpointError(f"{path} is a file; a checkpoint is the folder that holds {CONFIG} and {WEIGHTS}")
    known = f" (shipped checkpoints: {', '.join(names)})" if names else ""
    raise CheckpointError(f"no checkpoint at {path}: expected a folder with {CONFIG} and {WEIGHTS}{known}")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(read_regular(path))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {CONFIG}: it is not a robustdeq checkpoint, or incomplete") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): the file is damaged, copy it again") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} does not describe a robustdeq model; a checkpoint of the paper's released code "
            "is turned into one with 'robustdeq convert'"
        )
    for key in ("options", "metadata"):
        if not isinstance(config.get(key, {}), dict):
            raise CheckpointError(f"{path}: {key}: expected a mapping, got {config[key]!r:.100}")
    version = config.get("format_version")
    if not isinstance(version, int) or version > VERSION:
        raise CheckpointError(
            f"{folder} has format version {version}, this robustdeq reads up to {VERSION}: upgrade robustdeq"
        )
    return config


def _read_weights(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights and the configuration that belongs to them."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {WEIGHTS}: the checkpoint is incomplete")
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            embedded = json.loads((file.metadata() or {}).get(CONFIG, "{}"))
        digest = weights_digest(weights)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is truncated or damaged ({error}): copy it again") from None
    if not isinstance(embedded, dict) or embedded.get(DIGEST, digest) != digest:
        raise CheckpointError(f"{path} is damaged (its checksum does not fit its content): copy it again")
    if config.get(DIGEST) in (None, digest) or not embedded:  # not embedded: the weights were exchanged by hand
        return weights, config
    # The two files were not saved together. If saving was interrupted between them, the weights are newer and carry
    # their own configuration; if the architectures differ, somebody mixed up two checkpoints.
    if all(embedded.get(key) == config.get(key) for key in ("architecture", "options")):
        return weights, embedded
    raise CheckpointError(
        f"{folder}: {WEIGHTS} belongs to another architecture than {CONFIG} describes, "
        "or saving was interrupted; copy or save the checkpoint again"
    )


def _check_trust(folder: Path, config: dict[str, Any], trust: bool | Collection[str]) -> None:
    """Refuse to run code that a checkpoint names unless the caller trusts it, or saved it from the current folder."""
    modules = _modules(config)
    trusted = trust is True or (not isinstance(trust, bool) and modules <= set(trust))
    if modules and not trusted and not made_here(config):
        names = ", ".join(sorted(modules))
        raise CheckpointError(
            f"{folder} needs code outside robustdeq ({names}), and loading weights must not run code: if you trust who "
            f"made it, add --trust or --import {sorted(modules)[0]} (in Python: load(..., trust=True)), or load it in "
            "the folder that it was made in"
        )
    if trust is not True and is_reference(config.get("architecture")) and not made_here(config):
        _check_own(folder, config["architecture"])


def _check_own(folder: Path, reference: str) -> None:
    """Refuse what a trusted module only imports: trust in my_deq is none in my_deq:os.system."""
    home = str(getattr(resolve(reference), "__module__", None))
    if home.partition(".")[0] != module_of(reference).partition(".")[0]:
        raise CheckpointError(
            f"{folder} needs {reference}, which {module_of(reference)} does not define itself ({home} does): if you "
            "trust who made the checkpoint, add --trust (in Python: load(..., trust=True))"
        )


def _modules(config: dict[str, Any]) -> set[str]:
    """The modules outside robustdeq that loading imports."""
    architecture, code = str(config.get("architecture")), config.get(CODE)
    settings = modules_in({key: value for key, value in config.items() if key != "metadata"})
    if is_registered(architecture):
        return settings
    named = {module_of(architecture)} if is_reference(architecture) else set()
    listed = code.get("modules") if isinstance(code, dict) else None
    return settings | named | {str(module) for module in listed or ()}


def _build(folder: Path, config: dict[str, Any]) -> Any:
    try:
        for module in sorted(_modules(config)):
            import_module(module)
        settings = {
            name: decode(value)
            for name, value in config.items()
            if name not in ("format", "format_version", "architecture", "preset", "options", "metadata", DIGEST, CODE)
        }
        with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten: leave the generator as it was
            options = {k: decode(v) for k, v in config["options"].items()}
            model = build(config["architecture"], **options)
            if config.get("preset") is not None:
                model.architecture = replace(model.architecture, preset=str(config["preset"]))
        model.check_settings(settings)
        _check_steps(settings)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{folder / CONFIG} does not describe a model that can be built: {reason}") from error
    for name, value in settings.items():
        setattr(model, name, value)
    return model


def _check_steps(settings: dict[str, Any]) -> None:
    """Refuse solvers and gradient policies of more steps than a pass can keep."""
    for name, value in settings.items():
        for option in ("max_steps", "steps", "memory"):
            if isinstance(count := getattr(value, option, 0), int) and count > MOST_STEPS:
                raise ValueError(f"{name}: {option} is {count:,}, the most is {MOST_STEPS:,}")


def _check_shapes(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    own = model.state_dict()
    missing = sorted(own.keys() - weights.keys())
    unexpected = sorted(weights.keys() - own.keys())
    misfits = [
        f"{k} is {tuple(weights[k].shape)}, expected {tuple(own[k].shape)}"
        for k in sorted(own.keys() & weights.keys())
        if own[k].shape != weights[k].shape
    ]
    problems = [
        f"{len(items)} {what} ({'; '.join(items[:3])}{'; ...' if len(items) > 3 else ''})"
        for what, items in (("missing", missing), ("unexpected", unexpected), ("of another shape", misfits))
        if items
    ]
    if problems:
        raise CheckpointError(
            f"the weights in {folder} belong to another architecture than its {CONFIG} describes: {', '.join(problems)}"
        )


def _fill(model: nn.Module, weights: dict[str, Tensor]) -> None:
    default = next((t.dtype for t in weights.values() if t.is_floating_point()), None)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:  # each in its stored precision
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(weights[name].dtype if name in weights else default)
    model.load_state_dict(weights)
