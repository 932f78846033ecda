"""Checkpoints: a folder with config.json and model.safetensors, nothing that executes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from robustdeq.host.files import write_together
from robustdeq.models.settings import decode, encode

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DIGEST = "weights_sha256"
FORMAT = "robustdeq"
VERSION = 1


P = TypeVar("P", bound="Pretrained")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, with what is wrong and what to do."""


@dataclass(frozen=True)
class Architecture:
    """A registered builder and its options: what it takes to build a model again."""

    name: str
    options: dict[str, Any]


class Pretrained(ModelHubMixin):
    """save_pretrained / from_pretrained (and the Hub's push_to_hub) for models built by a registered architecture."""

    architecture: Architecture | None = None
    """Set by `create_model`, or by a class that is its own architecture."""
    metadata: dict[str, Any]
    """What else a checkpoint says of itself: data set, eps, training."""

    def settings(self) -> dict[str, Any]:
        """Attributes that a checkpoint keeps besides sizes and weights."""
        return {}

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Refuse settings that this model does not have or that make no sense."""
        if settings:
            raise ValueError(f"unknown settings {', '.join(sorted(settings))}")

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        *,
        config: None = None,
        model_card_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Write the checkpoint; an existing one stays whole until the new one is complete.

        `config` and `model_card_kwargs` are what `push_to_hub` passes on; the configuration is always the model's own.
        """
        if self.architecture is None:
            raise CheckpointError(
                f"this {type(self).__name__} was put together by hand, and a checkpoint could not say how to build it: "
                'register a function that builds it with @robustdeq.register_model("my-model") and make it with '
                'robustdeq.create_model("my-model")'
            )
        assert isinstance(self, nn.Module)
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": VERSION,
            "architecture": self.architecture.name,
            "metadata": getattr(self, "metadata", {}),
        }
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.state_dict().items()
        }
        content[DIGEST] = _digest(tensors)
        try:
            content["options"] = {name: encode(value) for name, value in self.architecture.options.items()}
            content |= {name: encode(value) for name, value in self.settings().items()}
            text = json.dumps(content, indent=2)
        except TypeError as error:
            raise CheckpointError(f"the model's options cannot be written as JSON: {error}") from error
        weights = save(tensors, metadata={CONFIG: text})
        folder = Path(save_directory)
        # The weights move first and carry the configuration: whatever happens before config.json follows, `load`
        # sees that the two do not belong together and has all of the new checkpoint.
        write_together({folder / WEIGHTS: weights, folder / CONFIG: text.encode()})

    @classmethod
    def from_pretrained(cls: type[P], pretrained_model_name_or_path: str | Path, **options: Any) -> P:
        """`robustdeq.load`, or a repository of the Hugging Face Hub, as an instance of this class."""
        path = Path(pretrained_model_name_or_path)
        if not path.exists():
            path = Path(snapshot_download(str(pretrained_model_name_or_path), allow_patterns=[CONFIG, WEIGHTS]))
        model = load(path, **options)
        if not isinstance(model, cls):
            raise CheckpointError(f"{path} holds a {type(model).__name__}, not a {cls.__name__}")
        return model


def load(path: str | Path, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Any:
    """The model of a checkpoint folder, or of a checkpoint shipped with robustdeq by its name, in eval mode.

    Args:
        path: A folder made by `save_pretrained`, or a name.
        device: Where to put the model; the CPU if not given.
        dtype: Its precision; as stored if not given.
    """
    folder = _find(path)
    config = _read_config(folder)
    weights, config = _read_weights(folder, config)
    model = _build(folder, config)
    _fill(model, weights, folder)
    model.metadata = config.get("metadata", {})
    return model.to(device=device, dtype=dtype).eval()


def shipped() -> dict[str, Path]:
    """The checkpoints that come with robustdeq, by name."""
    folder = Path(str(resources.files("robustdeq") / "checkpoints"))
    return {p.name: p for p in sorted(folder.iterdir()) if (p / CONFIG).is_file()} if folder.is_dir() else {}


def _find(path: str | Path) -> Path:
    folder = Path(path)
    if folder.is_dir():
        return folder
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
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {CONFIG}: it is not a robustdeq checkpoint, or incomplete") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}): the file is damaged, copy it again") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} does not describe a robustdeq model; a checkpoint of the paper's released code "
            "is turned into one with 'robustdeq convert'"
        )
    version = config.get("format_version")
    if not isinstance(version, int) or version > VERSION:
        raise CheckpointError(
            f"{folder} has format version {version}, this robustdeq reads up to {VERSION}: upgrade robustdeq"
        )
    return config


def _read_weights(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights, and the configuration that belongs to them."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {WEIGHTS}: the checkpoint is incomplete")
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            embedded = json.loads((file.metadata() or {}).get(CONFIG, "{}"))
        digest = _digest(weights)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated or damaged ({error}): copy it again") from None
    if not isinstance(embedded, dict) or embedded.get(DIGEST, digest) != digest:
        raise CheckpointError(f"{path} is damaged (its checksum does not fit its content): copy it again")
    if config.get(DIGEST) in (None, digest) or not embedded:  # the latter: weights exchanged by hand
        return weights, config
    # The two files were not saved together. If saving was interrupted between them, the weights are the newer ones and
    # carry their own configuration; weights of another architecture are a mix-up.
    if all(embedded.get(key) == config.get(key) for key in ("architecture", "options")):
        return weights, embedded
    raise CheckpointError(
        f"{folder}: {WEIGHTS} belongs to another architecture than {CONFIG} describes, "
        "or saving was interrupted; copy or save the checkpoint again"
    )


def _digest(weights: dict[str, Tensor]) -> str:
    """A checksum of all tensors, with names, shapes and dtypes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _build(folder: Path, config: dict[str, Any]) -> Any:
    from robustdeq.models.registry import build  # the registry's own models are Pretrained: import late

    try:
        settings = {
            name: decode(value)
            for name, value in config.items()
            if name not in ("format", "format_version", "architecture", "options", "metadata", DIGEST)
        }
        with torch.random.fork_rng(devices=[]):  # the random initialisation is thrown away: leave no trace of it
            model = build(config["architecture"], **{k: decode(v) for k, v in config["options"].items()})
        model.check_settings(settings)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{folder / CONFIG} does not describe a model that can be built: {reason}") from error
    for name, value in settings.items():
        setattr(model, name, value)
    return model


def _fill(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
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
    default = next((t.dtype for t in weights.values() if t.is_floating_point()), None)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:  # each in its stored precision
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(weights[name].dtype if name in weights else default)
    model.load_state_dict(weights)
