"""Processes that torchrun starts, and starts again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def test_after_a_restart_an_early_worker_waits_for_the_late_one():
    worker = Path(__file__).with_name("late_worker.py")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "LOCAL_", "TORCHELASTIC"))}
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max_restarts=1", worker]
    done = subprocess.run(
        [sys.executable, *words],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("met in attempt 1") == 2
