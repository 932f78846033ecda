"""Models that can be saved as checkpoints: a folder with config.json and model.safetensors, nothing executable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub import ModelHubMixin
from safetensors.torch import save
from torch import Tensor, nn

from robustdeq.host.files import write_together
from robustdeq.host.origin import is_from_here, origin
from robustdeq.models.hub import PREFIX, Result, is_on_hub, model_card
from robustdeq.models.settings import encode, modules_in

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
DIGEST = "weights_sha256"
CODE = "code"
"""Which modules outside robustdeq a checkpoint needs, and by whom and where it was made."""
FORMAT = "robustdeq"
VERSION = 1


P = TypeVar("P", bound="Pretrained")


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read or written; the message says why and what to do."""


@dataclass(frozen=True)
class Architecture:
    """Everything needed to build a model again: a builder and its options."""

    name: str
    """Registered name of the builder, such as "mdeq", or package.module:name."""
    options: dict[str, Any]
    preset: str | None = None
    """Name that the model was created by, such as "mdeq-tiny", if that is not the builder's."""
    module: str | None = None
    """Module outside robustdeq that defines the builder, if it can be imported."""


class Pretrained(ModelHubMixin):
    """Adds save_pretrained, from_pretrained and push_to_hub to models of a registered architecture."""

    architecture: Architecture | None = None
    """Set by `create_model`, or by the constructor of a class that is a registered architecture itself."""
    metadata: dict[str, Any]
    """What a checkpoint says about itself: data set, eps, training."""

    @property
    def model_name(self) -> str | None:
        """The registered name of the model, such as "mdeq-tiny"; None for a model that was put together by hand."""
        if self.architecture is None:
            return None
        from robustdeq.models.registry import preset_of  # the registry imports this module

        return self.architecture.preset or preset_of(self.architecture.name, self.architecture.options)

    def settings(self) -> dict[str, Any]:
        """Attributes that a checkpoint stores besides the architecture and the weights."""
        return {}

    def check_settings(self, settings: dict[str, Any]) -> None:
        """Raises an error for settings that this model does not have or that make no sense."""
        if settings:
            raise ValueError(f"unknown settings {', '.join(sorted(settings))}")

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        *,
        config: None = None,
        model_card_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Writes the checkpoint; an existing one stays intact until the new one is complete.

        Args:
            save_directory: The folder to write to.
            config: Passed by `push_to_hub` and ignored: the configuration is always the model's own.
            model_card_kwargs: Passed by `push_to_hub`: `name` and `results` of the model card. The folder is then
                for others: README.md describes the model, and where the data lay on this machine is left out.
        """
        assert isinstance(self, nn.Module)
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.state_dict().items()
        }
        shared = model_card_kwargs is not None
        text = self._described(weights_digest(tensors), private=() if not shared else ("data_root",))
        weights = save(tensors, metadata={CONFIG: text})
        folder = Path(save_directory)
        # The weights are moved into place first and carry the configuration. If saving is interrupted before
        # config.json follows, `load` sees that the two differ and still has the whole new checkpoint.
        files = {folder / WEIGHTS: weights, folder / CONFIG: text.encode()}
        if model_card_kwargs is not None:
            modules = json.loads(text).get(CODE, {}).get("modules", [])
            kind = self.model_name or type(self).__name__
            card = model_card(kind=kind, metadata=self.metadata, modules=modules, **model_card_kwargs)
            files[folder / CARD] = card.encode()
        write_together(files)

    def push_to_hub(self, repo_id: str, *, results: Sequence[Result] = (), **options: Any) -> str:
        """Uploads the checkpoint with a model card to the Hugging Face Hub; `rd.load("hf:user/name")` loads it.

        Args:
            repo_id: user/name.
            results: Evaluations for the card, such as what `robustdeq.benchmark` returned.
            options: Those of huggingface_hub: private, token, branch, commit_message, create_pr.
        """
        self.check_saveable()
        return super().push_to_hub(
            repo_id, model_card_kwargs={"name": PREFIX + repo_id, "results": list(results)}, **options
        )

    def check_saveable(self) -> None:
        """Raises an error if `save_pretrained` would."""
        self._described("")

    def _described(self, digest: str, private: Sequence[str] = ()) -> str:
        """The content of config.json, without metadata that are private."""
        if self.architecture is None:
            raise CheckpointError(
                f"this {type(self).__name__} was put together by hand, and a checkpoint could not say how to build it: "
                "make it with robustdeq.create_model and a function that builds it, registered with "
                '@robustdeq.register_model("my-model") or named as in create_model("my_module:my_function")'
            )
        content: dict[str, Any] = {
            "format": FORMAT,
            "format_version": VERSION,
            "architecture": self.architecture.name,
            **({} if self.architecture.preset is None else {"preset": self.architecture.preset}),
            "metadata": {k: v for k, v in getattr(self, "metadata", {}).items() if k not in private},
            DIGEST: digest,
        }
        try:
            content["options"] = {name: encode(value, own=True) for name, value in self.architecture.options.items()}
            content |= {name: encode(value, own=True) for name, value in self.settings().items()}
            modules = modules_in({**content, "metadata": None}) | ({self.architecture.module} - {None})
            if modules:
                content[CODE] = {"modules": sorted(modules), "origin": origin(_signed(content))}
            return json.dumps(content, indent=2)
        except TypeError as error:
            raise CheckpointError(f"the model's options cannot be written as JSON: {error}") from error

    @classmethod
    def from_pretrained(cls: type[P], pretrained_model_name_or_path: str | Path, **options: Any) -> P:
        """`robustdeq.load` that also takes a repository of the Hugging Face Hub, and checks the class of the model."""
        from robustdeq.models.checkpoint import load  # it imports this module

        path = pretrained_model_name_or_path
        model = load(path if Path(path).exists() or is_on_hub(path) else f"{PREFIX}{path}", **options)
        if not isinstance(model, cls):
            raise CheckpointError(f"{path} holds a {type(model).__name__}, not a {cls.__name__}")
        return model


def _signed(config: Mapping[str, Any]) -> str:
    """The part of a configuration that decides which code runs with which arguments, in a canonical form."""
    free = ("format", "format_version", "preset", "metadata", DIGEST, CODE)
    return json.dumps({key: value for key, value in config.items() if key not in free}, sort_keys=True)


def made_here(config: Mapping[str, Any]) -> bool:
    """Whether this user saved the configuration from the current folder."""
    code = config.get(CODE)
    return isinstance(code, dict) and is_from_here(_signed(config), code.get("origin"))


def shipped() -> dict[str, Path]:
    """The folders of the checkpoints that are shipped with robustdeq, by name."""
    folder = Path(str(resources.files("robustdeq") / "checkpoints"))
    return {p.name: p for p in sorted(folder.iterdir()) if (p / CONFIG).is_file()} if folder.is_dir() else {}


def weights_digest(weights: nn.Module | Mapping[str, Tensor]) -> str:
    """SHA-256 of all weights and buffers with their names, shapes and dtypes, as hexadecimal digits."""
    tensors = weights.state_dict() if isinstance(weights, nn.Module) else weights
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(content.shape)} {content.dtype}\n".encode())
        digest.update(content.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
