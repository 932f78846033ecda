"""Short training runs, in this process and in others, and how two of them are compared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from robustdeq.recipes import merge, parse_config, read_recipe

SMALL = {
    "objective": {"steps": 1},
    "schedule": {"epochs": 2, "batch_size": 12, "max_steps": 4, "pretrain_steps": 1},
    "validation": {"images": 20, "steps": 1, "every": 2},
    "checkpoint_every": 2,
}


RESNET = {
    "model": {"name": "resnet", "options": {"widths": [8, 16], "blocks": [1, 1]}},
    "objective": {"states": "final"},
    "jacobian": {"weight": 0.0},
}
"""A model without a solver, for claims about a run's folder that hold whatever is trained."""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=3", "-m")
"""A program whose arguments are a module and its words."""


def config(changes=None, *, recipe="digits-nano-trades-random"):
    """A run of a few seconds."""
    return parse_config(merge(merge(read_recipe(recipe), SMALL), changes or {}))


def resnet_config(changes=None):
    """A run of less than a second."""
    return config(merge(RESNET, changes or {}))


def words(out, *flags):
    """The command line of a 20-step run, without the program."""
    return [
        "train",
        "--recipe=digits-nano-trades-random",
        f"--out={out}",
        "--device=cpu",
        "--objective.steps=1",
        "--schedule.batch_size=12",
        "--schedule.max_steps=20",
        "--schedule.pretrain_steps=3",
        "--validation.images=20",
        "--validation.steps=1",
        "--validation.every=7",
        "--checkpoint_every=5",
        *flags,
    ]


def start(arguments, *, program=("-m", "robustdeq.cli.main")):
    """A process that runs the command on one thread."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "LOCAL_", "TORCHELASTIC"))}
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        env={**environment, "OMP_NUM_THREADS": "1", "ROBUSTDEQ_TRACEBACK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def finish(process, *, code=0, seconds=240):
    """The output of a process, once it has ended with this exit code."""
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == code, output
    return output


def wait_for(condition, process, *, seconds=120):
    """Poll until the condition holds, while the process runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.01)


def stored_step(out):
    """Steps taken according to the state file, 0 if there is none."""
    path = out / "state.pt"
    return torch.load(path, weights_only=True)["step"] if path.exists() else 0


def assert_same_run(a, b):
    """Weights, optimiser, averages, metrics and the description of the checkpoints, to the last bit."""
    for folder in ("last", "best"):
        assert_same_tensors(load_file(a / folder / "model.safetensors"), load_file(b / folder / "model.safetensors"))
        assert (a / folder / "config.json").read_bytes() == (b / folder / "config.json").read_bytes()
    assert (a / "metrics.csv").read_bytes() == (b / "metrics.csv").read_bytes()
    assert_same_tensors(*(torch.load(out / "state.pt", weights_only=True) for out in (a, b)))


def assert_same_tensors(a, b, where="state"):
    """Nested containers of tensors and plain values are equal bit by bit."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same_tensors(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same_tensors(left, right, f"{where}.{i}")
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, where
        assert torch.equal(a, b), where
    else:
        assert a == b, where
