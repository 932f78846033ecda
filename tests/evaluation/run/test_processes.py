"""Processes that are killed, share a store, or run out of disk write the tables of an undisturbed one."""

import os
import random
import subprocess
import sys
import time

import pytest

from robustdeq.evaluation import Store
from robustdeq.evaluation.run.stacking import bundles
from robustdeq.evaluation.suites.subject import Subject
from tests.evaluation.predictors import deployed
from tests.training.runs import finish, start, wait_for

pytestmark = pytest.mark.long

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m")
SUITE = """
attacks:
  - {name: k9, attack: pgd, options: {steps: 35}, oracle: unrolled, oracle_options: {state: 2, steps: 9}}
  - {name: k2, attack: pgd, options: {steps: 35}, oracle: unrolled, oracle_options: {state: 2, steps: 2}}
  - {name: apgd, attack: apgd, options: {n_iter: 40}, oracle_options: {values: deployed}}
keep_images: true
"""


@pytest.fixture
def words(tmp_path):
    """The command line of an evaluation of 60 items, without the program."""
    suite = tmp_path / "suite.yaml"
    suite.write_text(SUITE)

    def line(out, *flags):
        return [
            "evaluate",
            "tests.evaluation.predictors:small_deq",
            f"--suite={suite}",
            f"--out={out}",
            "--limit=90",
            "--shard_size=6",
            "--batch_size=3",
            "--device=cpu",
            *flags,
        ]

    return line


def unfinished(folder):
    """Files whose writing did not end; the lock of the manifest is no such file and stays."""
    return [path for path in folder.rglob(".*") if path.name != ".lock"]


def files(folder):
    """Everything that is compared: tables and images."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("shard-*")}


def count(folder):
    return len(list(folder.rglob("shard-*.parquet")))


@pytest.mark.parametrize(("flags", "kills"), [((), 10), (("--union",), 4)], ids=["all", "union"])
def test_killed_and_resumed_again_and_again_gives_the_same_bytes(tmp_path, words, flags, kills):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    finish(start(words(straight, *flags)))
    assert count(straight) == 60
    chance = random.Random(0)
    for kill in range(kills):
        process = start(words(killed, *flags))
        before = count(killed)
        wait_for(lambda before=before: count(killed) > before, process)
        time.sleep(chance.random() * 0.25)
        process.kill()
        process.communicate()
        assert count(killed) < 60, f"finished before kill {kill + 1}"
    output = finish(start(words(killed, *flags)))
    assert "union" in output
    assert files(killed) == files(straight)
    assert not unfinished(killed)


def test_two_processes_write_the_tables_of_one(tmp_path, words):
    room = "--batch_size=12"  # for two attacks on a shard
    finish(start(words(tmp_path / "one", room)))
    finish(start(["robustdeq.cli.main", *words(tmp_path / "two", room)], program=TORCHRUN))
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert len(list((tmp_path / "two").glob("times-*.jsonl"))) == 2
    specs = [record.spec for record in Store(tmp_path / "two").manifest.attacks.values()]
    subject = Subject(deployed())
    made = bundles(specs, subject, shard_size=6, batch_size=12)
    assert [[spec.name for spec in bundle] for bundle in made] == [["k9", "k2"], ["apgd"]]


def test_two_processes_share_a_union_run(tmp_path, words):
    flags = "--union", "--batch_size=12"
    finish(start(words(tmp_path / "one", *flags)))
    finish(start(["robustdeq.cli.main", *words(tmp_path / "two", *flags)], program=TORCHRUN))
    assert files(tmp_path / "two") == files(tmp_path / "one")


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_a_signal_ends_the_command_with_a_message(tmp_path, words, number, code):
    process = start(words(tmp_path / "out"))
    wait_for(lambda: count(tmp_path / "out") > 3, process)
    process.send_signal(number)
    output = finish(process, code=code)
    assert f"{count(tmp_path / 'out')} of 60 items are stored" in " ".join(output.split())
    assert not unfinished(tmp_path / "out")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root and the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_harms_nothing_and_the_run_resumes_when_there_is_room(tmp_path, words, small_disk):
    finish(start(words(tmp_path / "straight")))
    out = small_disk / "out"
    environment = {k: v for k, v in os.environ.items() if k != "ROBUSTDEQ_TRACEBACK"}
    line = [sys.executable, "-m", "robustdeq.cli.main", *words(out)]
    full = subprocess.run(line, env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert full.returncode == 1
    assert "robustdeq: error: " in full.stderr
    assert "no room for" in full.stderr
    assert "run the same command again" in full.stderr
    assert 0 < count(out) < 60
    whole = files(tmp_path / "straight")
    for name, content in files(out).items():
        assert content == whole[name]
    assert not unfinished(out)
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    finish(start(words(out)))
    assert files(out) == whole
