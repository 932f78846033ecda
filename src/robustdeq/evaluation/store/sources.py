"""Stores as sources of images for another store: their labels in its attacks' names, and their paths."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from robustdeq.evaluation.store.manifest import AttackRecord


@dataclass(frozen=True)
class Source:
    """A store whose images are scored on the predictor of another store, the target."""

    folder: Path
    label: str
    """Part of the attacks' names in the target: from.LABEL.ATTACK."""
    place: str
    """Path as the target stores it: relative to the target, so that both can move together."""


def named_sources(folders: Iterable[str | Path], attacks: Mapping[str, AttackRecord], store: Path) -> list[Source]:
    """The folders as sources of a store, each once, labelled by the shortest end of its path that no other one has.

    A source that the store knows already keeps its label, so that the same command resumes and sources can be added.

    Args:
        folders: Folders of the sources.
        attacks: Attacks in the manifest of the target.
        store: Folder of the target.
    """
    paths = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    known = _known(attacks, store)
    taken = {source.label for source in known.values()}
    others = {*paths, *known}

    def new(path: Path) -> Source:
        label = next(
            label
            for length in range(1, len(path.parts) + 2)
            if (label := _end(path, length)) not in taken
            and all(_end(other, length) != label for other in others if other != path)
        )
        return Source(path, label, Path(os.path.relpath(path, store.resolve())).as_posix())

    return [known.get(path) or new(path) for path in paths]


def source_at(place: str, store: Path) -> Path:
    """The folder of a source from its path in a store's manifest; earlier versions wrote absolute paths."""
    return (store.resolve() / place).resolve()


def _end(path: Path, length: int) -> str:
    """The last parts of a path in characters that attack names may contain; beyond its length with a checksum."""
    text = "+".join(re.sub(r"[^A-Za-z0-9._-]", "-", part.strip("/")) for part in path.parts[-length:])
    if length > len(path.parts):  # paths that differ in replaced characters only
        text += f"+{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    return text


def _known(attacks: Mapping[str, AttackRecord], store: Path) -> dict[Path, Source]:
    """The sources of a manifest's attacks, by their folders."""
    found = {}
    for name, options in ((n, c.spec.options) for n, c in attacks.items() if c.spec.attack == "stored"):
        folder = source_at(options["store"], store)
        label = name.removeprefix("from.").removesuffix(f".{options['attack']}")
        found[folder] = Source(folder, label, options["store"])
    return found
