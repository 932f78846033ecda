"""Files that are complete or not there, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

DAY = 86_400.0


class DiskFullError(OSError):
    """There was no room for a file; what was there before is unharmed."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside in the same folder, sync, move into place."""
    aside = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFullError(
            error.errno,
            f"no room for {path} ({len(content):,} bytes; {error.strerror}): everything finished so far is stored "
            "and whole; make room and run the same command again, it goes on from there",
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the move itself survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync folders
            raise
    finally:
        os.close(handle)


def remove_stale(folder: Path) -> list[Path]:
    """Remove what killed processes left aside: of this host's dead processes, and of other hosts when a day old."""
    removed = []
    for path in folder.rglob(".*.tmp"):
        host, _, pid = path.name.removesuffix(".tmp").rpartition(".")
        own = host.endswith(f".{socket.gethostname()}")
        try:
            stale = not _alive(int(pid)) if own else time.time() - path.stat().st_mtime > DAY
        except (ValueError, FileNotFoundError):
            continue
        if stale:
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # this process has not written yet: an earlier one had the same number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
