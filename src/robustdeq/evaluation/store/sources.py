"""What the stores whose images are shown to a predictor are called in the names of its attacks, and where they lie."""

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
    """A store whose images are shown to the predictor of another store."""

    folder: Path
    label: str
    """In the names of the attacks."""
    place: str
    """Where it lies as the other store writes it down: seen from its own folder, so that both can move together."""


def named_sources(folders: Iterable[str | Path], attacks: Mapping[str, AttackRecord], store: Path) -> list[Source]:
    """The folders as sources of a store, each once; its label is the shortest end of its path that no other has.

    One that the attacks of the store (in its manifest) come from already stays what it is there, whatever others are
    given now: the same command goes on, and further sources may be added.
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
    """The folder of a source that a store has written down; an absolute one, as earlier versions wrote, is itself."""
    return (store.resolve() / place).resolve()


def _end(path: Path, length: int) -> str:
    """The last parts of a path in letters that an attack's name may have; beyond its length with a checksum."""
    text = "+".join(re.sub(r"[^A-Za-z0-9._-]", "-", part.strip("/")) for part in path.parts[-length:])
    if length > len(path.parts):  # paths that differ in other letters only
        text += f"+{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    return text


def _known(attacks: Mapping[str, AttackRecord], store: Path) -> dict[Path, Source]:
    """The sources that attacks of a manifest come from, by their folders."""
    found = {}
    for name, options in ((n, c.spec.options) for n, c in attacks.items() if c.spec.attack == "stored"):
        folder = source_at(options["store"], store)
        label = name.removeprefix("from.").removesuffix(f".{options['attack']}")
        found[folder] = Source(folder, label, options["store"])
    return found
