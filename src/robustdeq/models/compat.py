"""Weights of the paper's released code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustdeq.models.mdeq import MDEQ
from robustdeq.solve import Broyden, Phantom

_RENAMES: tuple[tuple[str, str], ...] = (
    (r"downsample\.(\d+)\.(.+)", r"encoder.stem.\1.\2"),
    (r"stage0\.(\d+)\.(.+)", r"encoder.injection.\1.\2"),
    (r"fullstage\.branches\.(\d+)\.blocks\.0\.(.+)", r"dynamics.blocks.\1.\2"),
    (r"fullstage\.post_fuse_layers\.(\d+)\.conv\.(.+)", r"dynamics.out_conv.\1.\2"),
    (r"incre_modules\.(\d+)\.0\.downsample\.(.+)", r"head.blocks.\1.shortcut.\2"),
    (r"incre_modules\.(\d+)\.0\.(.+)", r"head.blocks.\1.\2"),
    (r"downsamp_modules\.(.+)", r"head.down.\1"),
    (r"final_layer\.(.+)", r"head.final.\1"),
    (r"classifier\.(.+)", r"head.linear.\1"),
)
_FURTHER = re.compile(r"downsample\.DS(\d+)(-BN)?\.(.+)")
_UP = re.compile(r"fullstage\.fuse_layers\.(\d+)\.(\d+)\.net\.(conv|gnorm)\.(.+)")
_DOWN = re.compile(r"fullstage\.fuse_layers\.(\d+)\.(\d+)\.net\.(\d+)\.(conv|gnorm)\.(.+)")


def rename(key: str) -> str | None:
    """Our name of an entry of the released state dict, or None for an unknown entry."""
    if match := _FURTHER.fullmatch(key):  # from the third downsampling on, layers of the stem have names
        count, norm, rest = match.groups()
        return f"encoder.stem.{3 * (int(count) - 1) + (1 if norm else 0)}.{rest}"
    if match := _UP.fullmatch(key):
        target, source, kind, rest = match.groups()
        return f"dynamics.up.{source}_{target}.{0 if kind == 'conv' else 1}.{rest}"
    if match := _DOWN.fullmatch(key):
        target, source, k, kind, rest = match.groups()
        return f"dynamics.down.{source}_{target}.{3 * int(k) + (0 if kind == 'conv' else 1)}.{rest}"
    for pattern, replacement in _RENAMES:
        if match := re.fullmatch(pattern, key):
            return match.expand(replacement)
    return None


def load_released(config: Mapping[str, Any] | str | NDArray[Any], state_dict: Mapping[str, Any]) -> MDEQ:
    """A released checkpoint as a model in eval mode that computes what the released evaluation computes.

    Its solver is `Broyden(max_steps=F_THRES, batch_coupled=True)` with tolerance 1e-3, its gradient `Phantom(9, 0.5)`.

    Args:
        config: The released configuration (MODEL, DEQ) as nested mappings, as JSON, or as an array of one JSON string.
        state_dict: The released weights as tensors or arrays, under their released names.
    """
    text = config.item() if isinstance(config, np.ndarray) else config
    sizes, max_steps = _sizes(json.loads(text) if isinstance(text, str) else text)
    renamed, unknown = {}, []
    for key, value in state_dict.items():
        name = rename(key.removeprefix("module."))  # the prefix is added by DataParallel
        if name is None:
            unknown.append(key)
        else:
            renamed[name] = value if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
    if unknown:
        raise ValueError(f"not weights of the released MDEQ: unknown entries {', '.join(unknown[:5])}")
    with torch.random.fork_rng(devices=[]):
        model = MDEQ(solver=Broyden(max_steps=max_steps, batch_coupled=True), gradient=Phantom(9, 0.5), **sizes)
    model.to(dtype=next((v.dtype for v in renamed.values() if v.is_floating_point()), torch.float32))
    try:
        model.load_state_dict(renamed)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise ValueError(
            f"the weights do not fit the configuration ({lines[0]}{' ...' if len(lines) > 1 else ''}); "
            "check DOWNSAMPLE_TIMES, which decides whether there is a stage0, and the sizes"
        ) from None
    return model.eval()


def infer_sizes(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that can be seen from the weights: all but groups, dropout and downsampling."""
    shapes = {k.removeprefix("module."): tuple(v.shape) for k, v in state_dict.items()}
    scales = 0
    while f"fullstage.branches.{scales}.blocks.0.conv1.weight_v" in shapes:
        scales += 1
    try:
        blocks = [shapes[f"fullstage.branches.{i}.blocks.0.conv1.weight_v"] for i in range(scales)]
        return {
            "num_classes": shapes["classifier.weight"][0],
            "in_channels": shapes["downsample.0.weight"][1],
            "channels": tuple(s[1] for s in blocks),
            "expansion": blocks[0][0] // blocks[0][1],
            "head_channels": tuple(shapes[f"incre_modules.{i}.0.conv1.weight"][0] for i in range(scales)),
            "final_channels": shapes["final_layer.0.weight"][0],
        }
    except (KeyError, IndexError) as error:
        raise ValueError(f"not weights of the released MDEQ: no entry {error}") from None


def released_config(sizes: Mapping[str, Any], *, groups: int, downsample: int, dropout: float) -> dict[str, Any]:
    """A configuration of the released form for `load_released`."""
    stage = {
        "NUM_BRANCHES": len(sizes["channels"]),
        "NUM_CHANNELS": list(sizes["channels"]),
        "HEAD_CHANNELS": list(sizes["head_channels"]),
        "FINAL_CHANSIZE": sizes["final_channels"],
    }
    return {
        "MODEL": {
            "NUM_CLASSES": sizes["num_classes"],
            "NUM_GROUPS": groups,
            "DROPOUT": dropout,
            "DOWNSAMPLE_TIMES": downsample,
            "EXPANSION_FACTOR": sizes["expansion"],
            "EXTRA": {"FULL_STAGE": stage},
        }
    }


_AFFINE = {"POST_GN_AFFINE": False, "BLOCK_GN_AFFINE": True, "FUSE_GN_AFFINE": True}
_FIXED: dict[str, Any] = {"NAME": "mdeq", "WNORM": True, **_AFFINE}
_FIXED_STAGE: dict[str, Any] = {"NUM_MODULES": 1, "BLOCK": "BASIC", "FUSE_METHOD": "SUM"}
_FIXED_BRANCHES = {"NUM_BLOCKS": 1, "BIG_KERNELS": 0}
_FIXED_DEQ: dict[str, Any] = {"F_SOLVER": "broyden", "STOP_MODE": "rel"}


def _sizes(config: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Options of `MDEQ` and the number of solver steps; raises an error for what `MDEQ` does not implement."""
    try:
        model = config["MODEL"]
        stage = model["EXTRA"]["FULL_STAGE"]
        deq = config.get("DEQ", {})
        sizes = {
            "num_classes": model.get("NUM_CLASSES", 10),
            "channels": stage["NUM_CHANNELS"],
            "expansion": model["EXPANSION_FACTOR"],
            "groups": model["NUM_GROUPS"],
            "dropout": model["DROPOUT"],
            "head_channels": stage["HEAD_CHANNELS"],
            "final_channels": stage["FINAL_CHANSIZE"],
            "downsample": model["DOWNSAMPLE_TIMES"],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a released configuration: {error} is missing") from None
    for section, fixed in ((model, _FIXED), (stage, _FIXED_STAGE), (deq, _FIXED_DEQ)):
        for key, value in fixed.items():
            if section.get(key, value) != value:
                raise ValueError(f"{key} = {section[key]!r} is not supported, only {value!r}")
    for key, allowed in _FIXED_BRANCHES.items():
        if any(v != allowed for v in np.atleast_1d(stage.get(key, allowed))):
            raise ValueError(f"{key} = {stage[key]} is not supported, only {allowed} for every branch")
    return sizes, deq.get("F_THRES", 8)
