"""Checks that a command can write where it will, before it works for hours."""

from __future__ import annotations

import os
from pathlib import Path


def check_folder(folder: Path, flag: str) -> None:
    """Refuses a path that is no folder and cannot become one, or that cannot be written into."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise ValueError(f"{there} is a {'file' if there.exists() else 'broken link'}; {flag} needs a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{there} cannot be written into; {flag} needs a folder that can")


def make_room(file: Path, flag: str) -> None:
    """Refuses a path that cannot be written as a file; creates its folder."""
    if file.is_dir():
        raise ValueError(f"{file} is a folder; {flag} needs a file")
    if file.exists():
        if not os.access(file, os.W_OK):
            raise ValueError(f"{file} cannot be written; {flag} needs a file that can")
        return
    check_folder(file.parent, flag)
    file.parent.mkdir(parents=True, exist_ok=True)
