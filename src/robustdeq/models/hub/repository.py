"""Checkpoints on the Hugging Face Hub: hf:user/name, and hf:user/name@revision."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

PREFIX = "hf:"


class HubError(RuntimeError):
    """A repository cannot be fetched; the message says why and what to do."""


def is_on_hub(path: str | Path) -> bool:
    """Whether it is a name such as hf:user/name."""
    return str(path).startswith(PREFIX)


def fetch(path: str | Path, files: list[str]) -> Path:
    """The local folder of a repository with these files alone; what was fetched before is not fetched again.

    Without a network the copy in the hub's cache is used.
    """
    name, _, revision = str(path).removeprefix(PREFIX).partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=files))
    except HFValidationError:
        raise HubError(f"{path}: expected {PREFIX}user/name, or {PREFIX}user/name@revision") from None
    except LocalEntryNotFoundError:
        raise HubError(
            f"{path} is not in the cache of the hub, and the hub cannot be reached: check the network (HF_HUB_OFFLINE, "
            "HF_ENDPOINT), or copy the checkpoint's folder here and name that"
        ) from None
    except (HfHubHTTPError, OSError) as error:
        said = " ".join(str(error).split())
        raise HubError(
            f"{path} cannot be fetched ({said[:200]}): is it spelt right? A private one needs 'hf auth login'"
        ) from error
