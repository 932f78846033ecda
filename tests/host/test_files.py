"""Files are complete or absent, whatever happens."""

import errno
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest

from robustdeq.host.files import DiskFullError, InUseError, held, remove_stale, write_atomically
from robustdeq.training.checkpoint import TrainingState, load_state, save_state


def test_a_full_disk_leaves_the_old_file_and_nothing_aside(tmp_path, monkeypatch):
    path = tmp_path / "a" / "file"
    write_atomically(path, b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"no room for .*file.*run the same command again"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_leaves_the_old_training_state(tmp_path, monkeypatch):
    state = TrainingState(step=1, model={}, optimizer={}, average=None, best=0.5, config={})
    save_state(tmp_path, state)

    def full(handle):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match=r"no room for .*state\.pt.*run the same command again"):
        save_state(tmp_path, replace(state, step=2))
    assert load_state(tmp_path) == state
    assert os.listdir(tmp_path) == ["state.pt"]


def test_errors_other_than_a_full_disk_are_not_reworded(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file" / "below", b"")


def test_files_of_dead_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = socket.gethostname()
    (tmp_path / "a").mkdir()
    stale = tmp_path / "a" / f".shard-0000.parquet.{host}.{dead.pid}.tmp"
    living = tmp_path / "a" / f".shard-0001.parquet.{host}.{os.getppid()}.tmp"
    elsewhere = tmp_path / f".manifest.json.another-{host}.{dead.pid}.tmp"
    forgotten = tmp_path / f".manifest.json.long-ago.{dead.pid}.tmp"
    for path in (stale, living, elsewhere, forgotten):
        path.write_bytes(b"half")
    os.utime(forgotten, (0, 0))
    remove_stale(tmp_path)
    assert not stale.exists()
    assert not forgotten.exists()
    assert living.exists()
    assert elsewhere.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch, code):
    def none(*_):
        raise OSError(code, "no locks")

    monkeypatch.setattr("robustdeq.host.files.fcntl.flock", none)
    with pytest.raises(OSError, match="no locks") if code == errno.EIO else nullcontext(), held(tmp_path):
        pass


def test_a_folder_is_held_by_one_process_until_it_ends_even_by_a_kill(tmp_path):
    program = "import sys, time; from pathlib import Path; from robustdeq.host.files import held\n"
    program += "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(InUseError, match=r"writing into .*choose another folder"), held(tmp_path):
            pass
        other.kill()
        other.wait()
    with held(tmp_path):
        pass
    with held(tmp_path):
        pass
