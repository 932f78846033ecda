"""What the documentation takes from the code while it is built: the command line's help, the list of decisions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

MARK = "<!-- the command line -->"


def on_config(config: Any) -> Any:
    """Every decision stands in the navigation, in order."""
    files = sorted((Path(config["docs_dir"]) / "decisions").glob("*.md"))
    for section in config["nav"]:
        if "Decisions" in section:
            section["Decisions"] = [f"decisions/{file.name}" for file in files]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The reference of the command line is its own help."""
    return markdown.replace(MARK, command_line()) if MARK in markdown else markdown


def command_line() -> str:
    """A section for each verb."""
    from robustdeq.cli.parser import VERBS, verb_parser

    os.environ["COLUMNS"] = "100"
    sections = []
    for verb in VERBS:
        sections.append(f"## robustdeq {verb}\n\n```text\n{verb_parser(verb).format_help().strip()}\n```\n")
    return "\n".join(sections)
