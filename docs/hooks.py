"""Fills in, while mkdocs builds, what comes from the code: the help of the command line and the list of decisions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MARK = "<!-- the command line -->"


def on_config(config: Any) -> Any:
    """List every decision in the navigation, in order."""
    files = sorted((Path(config["docs_dir"]) / "decisions").glob("*.md"))
    for section in config["nav"]:
        if "Decisions" in section:
            section["Decisions"] = [f"decisions/{file.name}" for file in files]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the help of every verb in the place of the mark."""
    return markdown.replace(MARK, command_line()) if MARK in markdown else markdown


def command_line() -> str:
    """A section for each verb."""
    from robustdeq.cli.arguments.parser import VERBS, verb_parser

    os.environ["COLUMNS"] = "100"
    sections = []
    for verb in VERBS:
        sections.append(f"## robustdeq {verb}\n\n```text\n{verb_parser(verb).format_help().strip()}\n```\n")
    return "\n".join(sections)
