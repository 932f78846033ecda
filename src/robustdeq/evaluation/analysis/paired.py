"""Compares two stores of the same images, image by image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robustdeq.evaluation.analysis.metrics import DEPLOYED, check_complete, check_union_known, judged_attacks, outcomes
from robustdeq.evaluation.analysis.statistics import Difference, bootstrap_difference
from robustdeq.evaluation.store.store import Store


def difference(
    a: Store, b: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str | None = None
) -> Difference:
    """Union accuracy of b minus that of a, paired image by image.

    Args:
        a: The store that is subtracted.
        b: The other store.
        attacks: Names of attacks; those that both stores have if not given.
        predictor: The scored predictor.
        state: "1".."N" or "final"; the deployed one if not given.

    Returns:
        The difference on the first images, as many as all these attacks were run on.
    """
    names = shared_attacks(a, b, judged_attacks(a)) if attacks is None else list(attacks)
    if not names:
        raise ValueError(f"{a.folder} and {b.folder} share no attack: nothing to compare but clean images")
    if a.manifest.data.sha256 != b.manifest.data.sha256:
        raise ValueError(f"{a.folder} and {b.folder} were evaluated on different images: nothing to pair")
    for store in (a, b):
        check_complete(store, names)
        check_union_known(store, predictor, state)
    tried = min(tried_images(s, names) for s in (a, b))
    left, right = (outcomes(s, names, predictor=predictor, state=state)[0][:tried] for s in (a, b))
    return bootstrap_difference(np.all(left, axis=1), np.all(right, axis=1))


def shared_attacks(a: Store, b: Store, attacks: Sequence[str]) -> list[str]:
    """Those of a's attacks that b has under the same name, with the same settings and inside its threat."""
    ours, theirs = a.manifest.attacks, b.manifest.attacks
    judged = judged_attacks(b)
    return [name for name in attacks if name in judged and ours[name].hash == theirs[name].hash]


def tried_images(store: Store, attacks: Sequence[str]) -> int:
    """Number of images, the first of the data, that all these attacks were run on."""
    images = store.manifest.data.images
    return min([images, *(store.manifest.attacks[name].spec.runs_on(images) for name in attacks)])
