"""Cases that were kept in the explorer: a picture, and what it shows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

CASE = "case.json"
FORMAT, VERSION = "robustdeq-case", 1


@dataclass(frozen=True)
class KeptCase:
    """A case that was kept in the explorer, as the report shows it."""

    label: str
    title: str
    said: str
    """What it shows, in words."""
    command: str
    svg: str
    size: tuple[float, float]


def read_case(label: str, folder: Path) -> KeptCase:
    """The case that `robustdeq explore` wrote into a folder."""
    try:
        said = json.loads((folder / CASE).read_text())
        if (said["format"], said["format_version"]) != (FORMAT, VERSION):
            raise ValueError("it is of another format")
        svg = (folder / "case.svg").read_text()
        size = re.match(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        if size is None:
            raise ValueError("case.svg is not a picture of the explorer")
        wide, high = float(size[1]), float(size[2])
        title, sentences, command = said["title"], " ".join(map(str, said["headline"])), said["command"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder} holds no case that can be read ({error}): keep it again, or remove it") from None
    return KeptCase(label, str(title), sentences, str(command), svg, (wide, high))
