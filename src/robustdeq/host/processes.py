"""Joining the other processes that torchrun started."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]


def launch(device: str, precision: Any = "32-true") -> Fabric:
    """The Fabric of this process, which runs alone or joins the others that torchrun started."""
    others = {"cuda": torch.cuda, "mps": torch.backends.mps}
    here = ["auto", "cpu", *(name for name, backend in others.items() if backend.is_available())]
    if device not in here:
        raise ValueError(f"no device {device!r}: torch {torch.__version__} can use {', '.join(here)} on this machine")
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    world = int(os.environ.get("WORLD_SIZE", "1")) if torchrun else 1
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if torchrun else 1
    fabric = Fabric(
        accelerator=device,
        devices=local,
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision=precision,
    )
    if world > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        _join_this_attempt(fabric, world)
    fabric.launch()
    return fabric


def _join_this_attempt(fabric: Fabric, world: int) -> None:
    """Creates the process group, with store keys that belong to this attempt.

    torchrun keeps one store over all restarts. Without a prefix, a restarted worker that is early reads the address of
    a peer that died in the attempt before, and gives up on it.
    """
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, is_master=False)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if fabric.device.type == "cuda":
        torch.cuda.set_device(fabric.device)
    dist.init_process_group(
        "nccl" if fabric.device.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt {attempt}", store),
        rank=int(os.environ["RANK"]),
        world_size=world,
    )
