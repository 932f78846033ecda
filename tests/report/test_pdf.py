"""Printing a page to PDF by a browser's command line."""

import os

import pytest

from robustdeq.report.pdf import print_pdf

BROWSER = """#!/bin/sh
for word; do case "$word" in --print-to-pdf=*) echo "$@" > "${word#*=}";; esac; done
"""


@pytest.mark.parametrize("system", ["windows", "root", "user"])
def test_the_sandbox_is_left_out_for_root_alone(tmp_path, monkeypatch, system):
    (tmp_path / "chromium").write_text(BROWSER)
    (tmp_path / "chromium").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    if system == "windows":  # where users have no numbers
        monkeypatch.delattr(os, "geteuid")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0 if system == "root" else 1000)
    said = print_pdf(tmp_path / "page.html", tmp_path / "page.pdf").read_text()
    assert ("--no-sandbox" in said) == (system == "root")
