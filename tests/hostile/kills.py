"""Kills at random moments: `python -m tests.hostile.kills --evaluations 100 --trainings 50` (or `make kills`).

An evaluation (with and without --union, on one and two processes) and a training are killed by SIGKILL again and again
until the same command has finished. Every file of results must then have the bytes of a run that was never killed.
Commands run in forks of this process, which has imported everything already: a kill costs a second, not ten.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robustdeq.cli.main import main as robustdeq
from tests.training.runs import assert_same_run

EVALUATE = [
    "evaluate",
    "tests.evaluation.predictors:small_deq",
    "--suite",
    "quick",
    "--data",
    "digits",
    "--eps",
    "0.05",
]
EVALUATE += ["--limit", "48", "--batch-size", "4", "--shard-size", "12", "--keep-images", "--device", "cpu"]
TRAIN = ["train", "--recipe", "digits-nano-trades-random", "--device", "cpu", "--schedule.max_steps", "24"]
TRAIN += ["--schedule.batch_size", "16", "--validation.every", "8", "--validation.images", "40"]
TRAIN += ["--checkpoint_every", "2", "--objective.steps", "2", "--validation.steps", "2"]
RESULTS = (".parquet", ".safetensors")


@dataclass
class Kind:
    """A command, and how many processes share it."""

    name: str
    words: list[str]
    processes: int = 1


EVALUATIONS = [
    Kind(f"evaluate{' --union' * union}, {processes} process{'es' * (processes > 1)}", words, processes)
    for union, words in ((False, EVALUATE), (True, [*(w for w in EVALUATE if w != "--keep-images"), "--union"]))
    for processes in (1, 2)
]
TRAINING = Kind("train", TRAIN)


def start(kind: Kind, out: Path) -> list[int]:
    """The processes of a command, as forks that say nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(kind.processes):
        pid = os.fork()
        if pid:
            started.append(pid)
            continue
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(os.open(out.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        if kind.processes > 1:
            os.environ |= {"TORCHELASTIC_RUN_ID": "kills", "WORLD_SIZE": str(kind.processes), "RANK": str(rank)}
            os.environ |= {"LOCAL_WORLD_SIZE": str(kind.processes), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        code = 1
        try:
            code = robustdeq([*kind.words, "--out", str(out)])
        finally:
            os._exit(code)
    return started


def finished(pids: list[int], seconds: float | None) -> bool:
    """Wait for the processes, or kill them after so many seconds; whether they ended by themselves."""
    end = None if seconds is None else time.monotonic() + seconds
    left = set(pids)
    while left:
        for pid in [*left]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                if status and end is None:
                    raise RuntimeError(f"a command that was not killed failed: {status}")
        if end is not None and time.monotonic() > end:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return not left
        time.sleep(0.01)
    return True


def results(out: Path) -> dict[str, bytes]:
    """The bytes of every file of results."""
    files = [p for p in sorted(out.rglob("*")) if p.suffix in RESULTS or p.name == "metrics.csv"]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in files}


def campaign(kind: Kind, kills: int, folder: Path, rng: np.random.Generator) -> int:
    """Kill a command so many times, over as many runs as that needs; returns the number of runs whose bytes differ."""
    folder.mkdir()
    began = time.monotonic()
    finished(start(kind, folder / "whole"), None)
    lasts, expected = time.monotonic() - began, results(folder / "whole")
    assert expected, "the command wrote nothing"
    done, run, differ = 0, 0, 0
    while done < kills:
        out, run = folder / f"run{run}", run + 1
        for _ in range(int(rng.integers(2, 6))):  # kills of this run
            if done >= kills or finished(start(kind, out), float(rng.uniform(0.05, lasts))):
                break
            done += 1
        finished(start(kind, out), None)
        same = results(out) == expected
        if kind is TRAINING:
            assert_same_run(folder / "whole", out)
        leftovers = [p.name for p in out.rglob("*.tmp")] + ["partial"] * (out / "partial").exists()
        differ += not same or bool(leftovers)
        rate = (time.monotonic() - began) / max(1, done)
        left = rate * (kills - done)
        print(f"  {kind.name}: {done} of {kills} kills, {left:.0f} s left", file=sys.stderr, flush=True)
    print(f"{kind.name:34}{done:6} kills {run:5} runs {len(expected):5} files {differ:5} differ", flush=True)
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.kills", description=__doc__)
    parser.add_argument("--evaluations", type=int, default=100, help="kills of evaluations, over their four kinds")
    parser.add_argument("--trainings", type=int, default=50, help="kills of a training")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import robustdeq.evaluation.evaluate
    import robustdeq.training.trainer  # noqa: F401

    rng = np.random.default_rng(given.seed)
    share, more = divmod(given.evaluations, len(EVALUATIONS))
    wanted = [(kind, share + (number < more)) for number, kind in enumerate(EVALUATIONS)] + [
        (TRAINING, given.trainings)
    ]
    with tempfile.TemporaryDirectory() as folder:
        kinds = [(kind, count) for kind, count in wanted if count]
        differ = sum(campaign(kind, count, Path(folder) / str(n), rng) for n, (kind, count) in enumerate(kinds))
    print(f"seed {given.seed}: {'all bytes are equal' if not differ else f'{differ} runs differ'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
