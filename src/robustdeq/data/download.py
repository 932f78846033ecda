"""One file from the web: checked, resumed, and in place only when it is whole."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from robustdeq.data.errors import DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and, if known, the bytes in all."""

CHUNK = 1 << 20


def download(url: str, target: Path, *, md5: str, progress: Progress | None = None, timeout: float = 30.0) -> Path:
    """Fetch `url` to `target`, unless it is there already; one process at a time.

    What has arrived stays in `<target>.part` when the connection breaks, and the next call goes on from there.

    Args:
        url: Where from.
        target: Where to.
        md5: The checksum without which nothing is put in place.
        progress: Called as data arrive; a line on stderr if not given.
        timeout: Seconds without an answer before giving up.
    """
    if target.is_file() and _md5(target) == md5:
        return target
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    progress = ProgressLine(target.name) if progress is None else progress
    try:
        _fetch(url, part, progress, timeout)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"could not download {url}: {reason}. Run it again to go on from where it stopped; "
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
        if error.code == 416 and have:  # nothing after what is there: whole already, or not this file; MD5 will tell
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
            have = _copy(response, file, have, total, progress)
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _copy(source: HTTPResponse, file: BinaryIO, have: int, total: int | None, progress: Progress) -> int:
    while chunk := source.read(CHUNK):
        file.write(chunk)
        have += len(chunk)
        progress(have, total)
    return have


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class ProgressLine:
    """Share, rate and remaining time on one line of stderr, at most four times a second."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shown = 0.0
        self.first: tuple[float, int] | None = None

    def __call__(self, received: int, total: int | None) -> None:
        """Show the state of a download."""
        now = time.monotonic()
        done = received == total
        if self.first is None:
            self.first = (now, received)
        if not done and now - self.shown < 0.25:
            return
        self.shown = now
        start, had = self.first
        rate = (received - had) / (now - start) if now > start else 0.0
        share = f" of {total / 1e6:.1f}" if total else ""
        left = f", {(total - received) / rate:.0f} s left" if total and rate else ""
        line = f"\r{self.name}: {received / 1e6:.1f}{share} MB, {rate / 1e6:.1f} MB/s{left}"
        sys.stderr.write(f"{line:<79}" + ("\n" if done else ""))
        sys.stderr.flush()
