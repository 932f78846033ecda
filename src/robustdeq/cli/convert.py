"""`robustdeq convert`: a checkpoint of the paper's released code into ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(
    file: Path,
    *,
    out: Path,
    config: Path | None = None,
    groups: int = 8,
    downsample: int = 0,
    dropout: float = 0.22,
    data: str = "cifar10",
    eps: str = "8/255",
) -> None:
    """Convert a checkpoint of the paper's released code into one of robustdeq.

    Args:
        file: The released checkpoint: a file of torch.save (nothing in it is executed), .npz or .safetensors.
        out: Folder for the checkpoint (config.json, model.safetensors).
        config: The released configuration (YAML or JSON). Without it, sizes are read off the weights, and groups,
            downsample and dropout, which leave no trace in weights, are taken from the flags.
        groups: GroupNorm groups (NUM_GROUPS), if there is no config.
        downsample: Number of downsamplings (DOWNSAMPLE_TIMES), if there is no config.
        dropout: Dropout rate (DROPOUT), if there is no config.
        data: Data set that the weights are for; `evaluate` and `predict` read it from the checkpoint.
        eps: L-infinity budget that the weights were trained for.
    """
    from rich.console import Console

    from robustdeq.host.terminal import printable
    from robustdeq.host.yaml_files import read_yaml
    from robustdeq.models import compat
    from robustdeq.threat import number

    console = Console()
    weights, found = _read(file)
    if config is not None:
        found = read_yaml(config)
        if not isinstance(found, Mapping):
            raise ValueError(f"{config} is not a released configuration: expected a mapping at the top")
    if found is None:
        sizes = compat.infer_sizes(weights)
        found = compat.released_config(sizes, groups=groups, downsample=downsample, dropout=dropout)
        console.print(f"no configuration given: groups {groups}, downsample {downsample}, dropout {dropout} assumed")
    model = compat.load_released(found, weights)
    model.metadata = {"dataset": data, "eps": number(eps, "--eps")}
    model.save_pretrained(out)
    parameters = sum(p.numel() for p in model.parameters())
    console.print(
        f"{printable(out)}: MDEQ with channels {model.config.channels}, {parameters:,} parameters, {model.solver}",
        markup=False,
    )


def _read(file: Path) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The weights and, if the file carries one, the configuration."""
    import numpy as np
    import torch
    from safetensors.torch import load_file

    if not file.is_file():
        raise FileNotFoundError(f"no file {file}")
    try:
        if file.suffix == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                return {k: arrays[k] for k in arrays.files}, None
        if file.suffix == ".safetensors":
            return load_file(file), None
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(
            f"{file} cannot be read as weights only ({type(error).__name__}): it is damaged, or holds objects that "
            "would have to be executed; save its state_dict alone with torch.save and convert that"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} holds {type(content).__name__}, expected a state dict")
    config = content.get("config")
    try:
        config = json.loads(config) if isinstance(config, str) else config
    except (ValueError, RecursionError):
        raise ValueError(f"{file}: its config is not valid JSON: give --config") from None
    if config is not None and not isinstance(config, Mapping):
        raise ValueError(f"{file}: its config is {type(config).__name__}, expected a mapping: give --config")
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(content.get(key), Mapping):
            return content[key], config
    return {k: v for k, v in content.items() if k != "config"}, config
