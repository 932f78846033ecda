"""The index of a report as PDF, printed by an installed Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from robustdeq.host.files import write_atomically

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 300
"""Seconds that printing may take."""


def find_browser() -> str:
    """The path of an installed Chromium.

    Raises:
        FileNotFoundError: None is installed.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise FileNotFoundError(
            f"--format pdf needs Chromium, and none of {', '.join(BROWSERS)} is on the PATH: install one, or print "
            "index.html from any browser"
        )
    return found


def print_pdf(page: Path, out: Path) -> Path:
    """Print an HTML file to a PDF file, with everything that is folded on the page opened."""
    browser = find_browser()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "page.pdf"
        command = [
            browser, "--headless", "--disable-gpu", "--no-first-run", "--no-pdf-header-footer",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder}/profile", f"--print-to-pdf={made}", page.resolve().as_uri(),
        ]  # fmt: skip
        if (
            getattr(os, "geteuid", None) and os.geteuid() == 0
        ):  # not on Windows; Chromium refuses to sandbox itself for root, as in a container
            command.insert(1, "--no-sandbox")
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if not made.is_file():
            said = (run.stderr.strip().splitlines() or ["nothing"])[-1]
            raise RuntimeError(f"{browser} made no PDF of {page} and said: {said}; print the page from a browser")
        write_atomically(out, made.read_bytes())
    return out
