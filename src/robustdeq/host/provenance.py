"""What a run was made with: versions, commit, hardware."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def provenance(world_size: int = 1) -> dict[str, Any]:
    """Versions, commit and hardware of this process, as JSON."""
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "robustdeq": version("robustdeq"),
        },
        "commit": commit(),
        "hardware": {"machine": processor(), "threads": torch.get_num_threads(), "processes": world_size},
    }


def processor() -> str:
    """Name of the CPU and number of its cores."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: *(.*\S)", info.read_text(), re.M) if info.exists() else None
    return f"{found[1] if found else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def commit() -> str | None:
    """Commit of the source tree that this package runs from, with a + if files have changed since; None outside git."""
    here = str(Path(__file__).parent)
    try:
        head, changes = (
            subprocess.run(["git", "-C", here, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")
