"""Downloads that resume, and that put a file in place only once its checksum is right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from robustdeq.data.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and, if known, the total."""

CHUNK = 1 << 20


def download(url: str, target: Path, *, md5: str, progress: Progress | None = None, timeout: float = 30.0) -> Path:
    """Download `url` to `target`, unless the file is there already; one process at a time.

    If the connection breaks, or no data arrive for `timeout` seconds, what has arrived stays in `<target>.part`, and
    the next call resumes from there. A file with another checksum is deleted. Without `progress`, a bar is shown on
    standard error.
    """
    if target.is_file() and _md5(target) == md5:
        return target
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _bar(target.name) if progress is None else nullcontext(progress) as show:
            _fetch(url, part, show, timeout)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"could not download {url}: {reason}. Run it again to resume; "
            f"without a network, fetch the file on another machine and put it at {target}"
        ) from error
    found = _md5(part)
    if found != md5:
        part.unlink()
        raise DownloadError(
            f"what {url} gave is not the expected file: its MD5 is {found}, not {md5}. It was deleted: try again"
        )
    os.replace(part, target)
    return target


def _fetch(url: str, part: Path, progress: Progress, timeout: float) -> None:
    have = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response: HTTPResponse = urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing is left to send: MD5 will tell whether the part is the whole file
            return
        raise
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumed:
            raise OSError(f"the server sent {response.headers.get('Content-Range')}, not the bytes from {have}")
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with open(part, "ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """A bar on standard error with the size, the rate and the remaining time."""
    from rich import progress
    from rich.console import Console

    columns = (progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
    remaining = progress.TimeRemainingColumn()
    with progress.Progress(progress.TextColumn(name), *columns, remaining, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None)
        yield lambda received, total: bar.update(task, completed=received, total=total)
