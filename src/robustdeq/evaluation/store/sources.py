"""Stores as sources of images for another store: their labels and paths, and their images as its attacks."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from robustdeq.evaluation.store.attack_spec import SANITY, AttackSpec
from robustdeq.evaluation.store.manifest import AttackRecord, DataRecord
from robustdeq.evaluation.store.store import Store

FIXED = ("cifar10", "digits")
"""Data sets with fixed content: equal positions are equal images, however many are evaluated."""


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

    A source that the store's attacks name already keeps its label, so that the same command resumes and sources can be
    added.
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


def stored_attacks(source: Source, data: DataRecord) -> list[AttackSpec]:
    """The kept images of another store as attacks on a predictor that is evaluated on `data`.

    Only images made against the source's own predictor count; those that it was shown itself have their own source.
    """
    store = Store(source.folder)
    manifest, folder = store.manifest, source.folder
    if manifest.union:
        raise ValueError(
            f"{folder} was evaluated with --union, where broken images leave: it has no images for a transfer; "
            "evaluate it with --keep-images and without --union into another folder"
        )
    own = [
        r
        for r in manifest.attacks.values()
        if r.spec.attack != "stored" and r.spec.group != SANITY and r.spec.survivors is None
    ]
    kept = [record for record in own if store.has_images(record.spec.name)]
    _check_same_images(store, data)
    if not kept:
        raise ValueError(f"{folder} keeps no adversarial images: evaluate it with --keep-images or --suite transfer")
    return [
        AttackSpec(
            name=f"from.{source.label}.{record.spec.name}",
            attack="stored",
            options={
                "store": source.place,
                "attack": record.spec.name,
                "hash": record.hash,
                "model": manifest.model.hash,
            },
            oracle="none",
            group="transfer",
            limit=record.spec.limit,
            norm=record.spec.norm,
            eps=record.spec.eps,
        )
        for record in kept
    ]


def _check_same_images(source: Store, own: DataRecord) -> None:
    """Refuse a source of other images: images are identified by their positions in the data."""
    other = source.manifest.data
    if other.sha256 == own.sha256:
        return
    same_set = other.name == own.name and other.name in FIXED and other.split == own.split
    if not same_set or other.images < own.images:
        raise ValueError(
            f"{source.folder} holds {other.images} images of {other.name} ({other.sha256}), not the "
            f"{own.images} of {own.name} ({own.sha256}) that are evaluated: its attacks do not fit"
        )


def stored_images(spec: AttackSpec, target: Path, x: Tensor, index: Tensor) -> Tensor:
    """Adversarial images of the positions `index`, from the source of an attack that `stored_attacks` made.

    `target` is the folder of the store under evaluation, and `x` holds the clean images of the same positions.
    """
    source = Store(source_at(spec.options["store"], target))
    size, attack, threat = source.manifest.shard_size, spec.options["attack"], spec.threat
    found = torch.empty_like(x)
    for shard in sorted({int(i) // size for i in index}):
        positions, pixels = source.images(attack, shard)
        row_of = {int(position): row for row, position in enumerate(positions)}
        for row, i in enumerate(index.tolist()):
            if i // size == shard:
                if i not in row_of:
                    raise ValueError(f"{source.folder} keeps no image {i} of {attack}")
                found[row] = pixels[row_of[i]].to(x)
    if bool((threat.distance(found, x) > threat.eps + 1e-5).any()):
        raise ValueError(
            f"{source.folder}: images of {attack} lie outside {threat} around the images that are evaluated: they were "
            "made from other images"
        )
    return found
