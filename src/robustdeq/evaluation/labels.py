"""What the stores whose images are shown to a predictor are called in the names of its attacks, and where they lie."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def place(source: Path, store: Path) -> str:
    """Where a source lies as a store writes it down: as seen from its own folder, so that both can move together."""
    try:
        return Path(os.path.relpath(source.resolve(), store.resolve())).as_posix()
    except ValueError:  # on another drive
        return str(source.resolve())


def source_at(written: str, store: Path) -> Path:
    """The folder of a source that a store has written down; one on its own stays where it was."""
    return (store.resolve() / written).resolve()


def source_labels(folders: Iterable[str | Path], attacks: Mapping[str, Any], store: Path) -> dict[Path, str]:
    """A label for each folder, once: the shortest end of its path that no other source has.

    A folder that the attacks of this store (in its manifest) come from already keeps its label, whatever others are
    given now: the same command goes on, and further sources may be added.
    """
    paths = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    known = _known(attacks, store)
    taken = set(known.values())
    labels = {path: known[path] for path in paths if path in known}
    others = {*paths, *known}
    for path in (path for path in paths if path not in known):
        labels[path] = next(
            label
            for length in range(1, len(path.parts) + 2)
            if (label := _end(path, length)) not in taken
            and all(_end(other, length) != label for other in others if other != path)
        )
    return {path: labels[path] for path in paths}


def _end(path: Path, length: int) -> str:
    """The last parts of a path in letters that an attack's name may have; beyond its length with a checksum."""
    text = "+".join(re.sub(r"[^A-Za-z0-9._-]", "-", part.strip("/")) for part in path.parts[-length:])
    if length > len(path.parts):  # paths that differ in other letters only
        text += f"+{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    return text


def _known(attacks: Mapping[str, Any], store: Path) -> dict[Path, str]:
    """Folder and label of the sources that attacks of a manifest come from."""
    stored = {name: config["options"] for name, config in attacks.items() if config["attack"] == "stored"}
    return {
        source_at(options["store"], store): name.removeprefix("from.").removesuffix(f".{options['attack']}")
        for name, options in stored.items()
    }
