"""Files that are complete or absent, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import fnmatch
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DAY = 86_400.0
LOCK = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFullError(OSError):
    """The disk is full; earlier files are unharmed."""


def read_regular(path: Path) -> bytes:
    """The content of a regular file; a pipe or a device might be read without end."""
    if os.path.lexists(path) and not path.is_file():
        raise OSError(f"{path} is {'not a regular file' if path.exists() else 'a broken link'}")
    return path.read_bytes()


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a temporary file in the same folder, syncs it, and moves it into place."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Writes all files to temporary ones before any is moved into place: a kill or a full disk leaves the old files."""
    asides = {path: path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp") for path in contents}
    with saying_full(*contents, size=sum(map(len, contents.values()))):
        for path in contents:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            for path, aside in asides.items():
                with open(aside, "wb") as file:
                    file.write(contents[path])
                    file.flush()
                    os.fsync(file.fileno())
            for path, aside in asides.items():
                os.replace(aside, path)
        finally:
            for aside in asides.values():
                aside.unlink(missing_ok=True)
        for folder in {path.parent for path in contents}:
            _sync_folder(folder)


@contextmanager
def saying_full(*paths: Path, size: int) -> Iterator[None]:
    """If the disk or the quota is full inside, the error says what did not fit and that nothing is lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskFullError(
            error.errno,
            f"no room for {', '.join(map(str, paths))} ({size:,} bytes; {error.strerror}): everything finished so far "
            "is stored; free some space and run the same command again to resume",
        ) from error


class InUseError(RuntimeError):
    """Another process is writing into a folder."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds a folder: other processes that try to hold it get an `InUseError`.

    The system releases the lock when this process ends, even by a kill. Where there are no such locks (Windows, some
    network file systems) nobody is kept out.
    """
    with _lock(folder, wait=False):
        yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits until no other process is inside for the same folder: what is read inside is still true when written.

    The system releases the lock when this process ends, even by a kill.
    """
    with _lock(folder, wait=True):
        yield


@contextmanager
def _lock(folder: Path, *, wait: bool) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InUseError(
                    f"another process is writing into {folder}: wait for it or stop it, or choose another folder"
                ) from None
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
        yield


def _sync_folder(folder: Path) -> None:
    """Makes a move survive a power cut, where the system can; the files are in place already."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems cannot sync folders
        if error.errno in (*FULL, errno.EIO):
            raise
    finally:
        os.close(handle)


def remove_stale(folder: Path) -> None:
    """Removes temporary files of this host's dead processes, and those of other hosts once they are a day old."""
    walked = os.walk(folder)  # unlike glob, it tolerates folders that vanish meanwhile
    for path in (Path(where) / name for where, _, names in walked for name in fnmatch.filter(names, ".*.tmp")):
        host, _, pid = path.name.removesuffix(".tmp").rpartition(".")
        own = host.endswith(f".{socket.gethostname()}")
        try:
            stale = not _alive(int(pid)) if own else time.time() - path.stat().st_mtime > DAY
        except (ValueError, FileNotFoundError):
            continue
        if stale:
            path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()  # this process has not written yet: an earlier one had the same id
