"""A run that was killed goes on as if it had not been."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.training.runs import TORCHRUN, assert_same_run, finish, start, stored_step, wait_for, words

PLAIN = ()
EVERYTHING = (
    "--schedule.ema=0.9",
    "--jacobian.weight=0.4",
    "--jacobian.probability=0.5",
    "--model.options={dropout: 0.1}",
)
pytestmark = pytest.mark.long


@pytest.mark.parametrize("flags", [PLAIN, EVERYTHING], ids=["plain", "ema and jacobian"])
def test_twenty_steps_equal_ten_kill_nine_and_ten(tmp_path, flags):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    finish(start(words(straight, *flags)))

    process = start(words(killed, *flags))
    wait_for(lambda: stored_step(killed) >= 5, process)
    time.sleep(int.from_bytes(os.urandom(1)) / 1024)  # somewhere in the steps that follow
    process.kill()
    finish(process, code=-signal.SIGKILL)
    assert 5 <= stored_step(killed) < 20
    finish(start(words(killed, *flags)))

    assert stored_step(killed) == 20
    assert went_on_at(killed) >= 5
    assert_same_run(straight, killed)


@pytest.mark.parametrize("flags", [PLAIN, EVERYTHING], ids=["plain", "ema and jacobian"])
def test_torchrun_restarts_a_killed_worker_from_the_checkpoint(tmp_path, flags):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    finish(start(["robustdeq.cli.main", *words(straight, *flags)], program=TORCHRUN))

    process = start(["robustdeq.cli.main", *words(killed, *flags)], program=TORCHRUN)
    wait_for(lambda: stored_step(killed) >= 5, process)
    worker = worker_of(process.pid, rank=1)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{worker}").exists(), process)
    assert stored_step(killed) < 20
    finish(process)

    assert stored_step(killed) == 20
    assert went_on_at(killed) >= 5
    assert_same_run(straight, killed)


def went_on_at(out):
    """The step of the first checkpoint that the run went on from."""
    return json.loads((out / "run.json").read_text())["resumed"][0]["step"]


def worker_of(parent, *, rank):
    """The process of that rank among the children of torchrun."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            child = int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]) == parent
            if child and f"RANK={rank}".encode() in folder.joinpath("environ").read_bytes().split(b"\0"):
                return int(folder.name)
        except (OSError, ProcessLookupError):
            continue
    raise AssertionError(f"no worker of rank {rank}")
