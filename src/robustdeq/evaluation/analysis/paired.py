"""Compares two stores of the same images, image by image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation.analysis.metrics import DEPLOYED, check_complete, check_union_known, judged_attacks, outcomes
from robustdeq.evaluation.analysis.seeds import hierarchical_difference
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
    left, right = _union_outcomes([a, b], names, predictor, state)
    return bootstrap_difference(left, right)


def difference_over_seeds(
    a: Sequence[Store],
    b: Sequence[Store],
    attacks: Sequence[str] | None = None,
    *,
    predictor: str = DEPLOYED,
    state: str | None = None,
) -> Difference:
    """Mean union accuracy of method b minus that of a, each trained under several seeds; over images and seeds.

    `metrics.hierarchical_difference` says how the interval is made and how far to trust it with few seeds.

    Args:
        a: One store per training of the method that is subtracted, at least two.
        b: One store per training of the other method, at least two.
        attacks: Names of attacks; those that all stores have if not given.
        predictor: The scored predictor.
        state: "1".."N" or "final"; the deployed one if not given.
    """
    stores = [*a, *b]
    names = judged_attacks(stores[0]) if attacks is None else list(attacks)
    if attacks is None:
        for other in stores[1:]:
            names = shared_attacks(stores[0], other, names)
    outcomes = np.stack(_union_outcomes(stores, names, predictor, state))
    return hierarchical_difference(outcomes[: len(a)], outcomes[len(a) :])


def _union_outcomes(
    stores: Sequence[Store], attacks: Sequence[str], predictor: str, state: str | None
) -> list[NDArray[np.bool_]]:
    """For each store, whether each image survives all these attacks, on the images that all stores ran them on."""
    first = stores[0]
    if not attacks:
        raise ValueError(
            f"{' and '.join(str(s.folder) for s in stores)} share no attack: nothing to compare but clean images"
        )
    for store in stores:
        if store.manifest.data.sha256 != first.manifest.data.sha256:
            raise ValueError(f"{first.folder} and {store.folder} were evaluated on different images: nothing to pair")
        check_complete(store, attacks)
        check_union_known(store, predictor, state)
    tried = min(tried_images(store, attacks) for store in stores)
    each = (outcomes(store, attacks, predictor=predictor, state=state)[0][:tried] for store in stores)
    return [np.all(correct, axis=1) for correct in each]


def shared_attacks(a: Store, b: Store, attacks: Sequence[str]) -> list[str]:
    """Those of a's attacks that b has under the same name, with the same settings and inside its threat."""
    ours, theirs = a.manifest.attacks, b.manifest.attacks
    judged = judged_attacks(b)
    return [name for name in attacks if name in judged and ours[name].hash == theirs[name].hash]


def tried_images(store: Store, attacks: Sequence[str]) -> int:
    """Number of images, the first of the data, that all these attacks were run on."""
    images = store.manifest.data.images
    return min([images, *(store.manifest.attacks[name].spec.runs_on(images) for name in attacks)])
