"""Kept images of other stores, as attacks on a predictor."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from robustdeq.evaluation.store.attack_spec import SANITY, AttackSpec
from robustdeq.evaluation.store.manifest import DataRecord
from robustdeq.evaluation.store.sources import Source, source_at
from robustdeq.evaluation.store.store import Store

FIXED = ("cifar10", "digits")
"""Data sets that are the same wherever they lie: the first images of one are the first of another."""


def stored_attacks(source: Source, data: DataRecord) -> list[AttackSpec]:
    """The kept images of another store, as attacks on a predictor that is evaluated on data (as in its manifest).

    Only those that were made against its own predictor: images that it was shown itself have their own source.
    """
    store, folder = Store(source.folder), source.folder
    if store.manifest.union:
        raise ValueError(
            f"{folder} was evaluated with --union, where broken images leave: it has no images for a transfer; "
            "evaluate it with --keep-images and without --union into another folder"
        )
    configs = store.manifest.attacks
    own = [name for name, c in configs.items() if c.spec.attack != "stored" and c.spec.group != SANITY]
    names = [name for name in own if store.has_images(name)]
    _check_same_images(store, data)
    if not names:
        raise ValueError(f"{folder} keeps no adversarial images: evaluate it with --keep-images or --suite transfer")
    return [
        AttackSpec(
            name=f"from.{source.label}.{name}",
            attack="stored",
            options={
                "store": source.place,
                "attack": name,
                "hash": configs[name].hash,
                "model": store.manifest.model.hash,
            },
            oracle="none",
            group="transfer",
            limit=configs[name].spec.limit,
            norm=configs[name].spec.norm,
            eps=configs[name].spec.eps,
        )
        for name in names
    ]


def _check_same_images(source: Store, own: DataRecord) -> None:
    """Images are known by their positions: those of a source must come from the same data, and be enough."""
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
    """Adversarial images that another store keeps for the one in folder target, in the order of index."""
    source = Store(source_at(spec.options["store"], target))
    size = source.manifest.shard_size
    found = torch.empty_like(x)
    for shard in sorted({int(i) // size for i in index}):
        places, pixels = source.images(spec.options["attack"], shard)
        where = {int(place): k for k, place in enumerate(places)}
        for row, i in enumerate(index.tolist()):
            if i // size == shard:
                if i not in where:
                    raise ValueError(f"{source.folder} keeps no image {i} of {spec.options['attack']}")
                found[row] = pixels[where[i]].to(x)
    threat = spec.threat
    if bool((threat.distance(found, x) > threat.eps + 1e-5).any()):
        raise ValueError(
            f"{source.folder}: images of {spec.options['attack']} lie outside {threat} around the images that are "
            "evaluated: they were made from other images"
        )
    return found
