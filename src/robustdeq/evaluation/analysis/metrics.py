"""The numbers of the paper's tables and figures, from a store alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from robustdeq.evaluation.analysis.seeds import hierarchical_difference as hierarchical_difference
from robustdeq.evaluation.analysis.statistics import Share, bootstrap_minimum, wilson
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.sources import source_at
from robustdeq.evaluation.store.store import Store

DEPLOYED = "deployed"
SHARE_COLUMNS = ("accuracy", "low", "high", "images")


class IncompleteError(ValueError):
    """The store does not hold the results that a number needs."""


@dataclass(frozen=True)
class Strongest:
    """The attack of the grid under which the accuracy is lowest."""

    attack: str
    state: int
    steps: int
    damping: float
    accuracy: Share
    oracle_options: dict[str, Any]
    """Options of its oracle, as in the manifest."""


def grid_attacks(store: Store) -> list[str]:
    """Names of the grid's attacks in a store, oblivious and aware."""
    return [name for name, config in store.manifest.attacks.items() if config.spec.in_grid]


def judged_attacks(store: Store) -> list[str]:
    """Names of the attacks that stay inside the threat; sanity checks are left out."""
    threat, records = store.manifest.threat, store.manifest.attacks.items()
    return [name for name, record in records if record.spec.counts(threat)]


def whole_attacks(store: Store) -> list[str]:
    """Names of the attacks that were not restricted to the survivors of others: they have an accuracy of their own."""
    return [name for name, record in store.manifest.attacks.items() if record.spec.survivors is None]


def minimum_attacks(store: Store) -> list[str]:
    """Names of the attacks of the paper's minimum: the grid; without dynamics, PGD-10 on the predictor's gradient."""
    if store.manifest.dynamic:
        return grid_attacks(store)
    return [name for name, config in store.manifest.attacks.items() if config.spec.group == "ready"]


def clean_accuracy(store: Store, *, predictor: str = DEPLOYED, state: str | None = None) -> Share:
    """Accuracy on clean images."""
    correct = store.clean().filter(_column(predictor, state)).select("image", "correct").collect()
    return wilson(int(correct["correct"].sum()), len(correct))


def accuracy(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str | None = None, state: str | None = DEPLOYED
) -> pl.DataFrame:
    """Accuracy under each attack, for each predictor and state asked for.

    Args:
        store: The store.
        attacks: Names of attacks; if not given, all but those that were run on the survivors of others.
        predictor: One of the scored predictors; all if not given.
        state: "1".."N", "final", "deployed" (the one each predictor deploys), or None for all.

    Returns:
        attack, predictor, state, accuracy, low, high (Wilson, 95%), images, complete. Under `union` an accuracy is that
        of the images that the attack was run on only; use `union_accuracy` there.
    """
    rows = store.rows(whole_attacks(store) if attacks is None else attacks)
    if predictor is not None:
        rows = rows.filter(pl.col("predictor") == predictor)
    if state is not None:
        rows = rows.filter(_at(state))
    keys = ("attack", "predictor", "state")
    counted = rows.group_by(keys, maintain_order=True).agg((~pl.col("success")).sum(), pl.len()).collect()
    complete = {name: store.complete(name) for name in counted["attack"].unique()}
    records = [(*key, *astuple(wilson(correct, n)), complete[key[0]]) for *key, correct, n in counted.iter_rows()]
    types = dict.fromkeys(keys, pl.String) | dict.fromkeys(SHARE_COLUMNS[:3], pl.Float64)
    return pl.DataFrame(records, schema={**types, "images": pl.Int64, "complete": pl.Boolean}, orient="row")


def share_of(row: Mapping[str, Any]) -> Share:
    """The share in a row of one of these tables."""
    return Share(*(row[name] for name in SHARE_COLUMNS))


def attack_shares(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str = DEPLOYED
) -> dict[str, Share]:
    """Accuracy of a predictor at a state under each attack (all if not given), by attack name."""
    table = accuracy(store, attacks, predictor=predictor, state=state)
    return {row["attack"]: share_of(row) for row in table.iter_rows(named=True)}


def outcomes(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each image is still classified correctly under each attack, and whether it was run on: (images, attacks).

    The first column is before any attack. An attack breaks no image that it was not run on, because of its limit or
    under `union`.
    """
    names = list(store.attacks if attacks is None else attacks)
    clean = store.clean().filter(_column(predictor, state)).select("image", "correct").sort("image").collect()
    images = clean["image"].to_numpy()
    place = np.full(int(images.max()) + 1 if len(images) else 0, -1)
    place[images] = np.arange(len(images))
    correct = np.ones((len(images), len(names) + 1), dtype=bool)
    correct[:, 0] = clean["correct"].to_numpy()
    tried = np.zeros_like(correct)
    tried[:, 0] = True
    rows = (
        store.rows(names)
        .filter(_column(predictor, state))
        .select("attack", "image", "success")
        .collect()
        .with_columns(column=pl.col("attack").replace_strict(names, list(range(1, len(names) + 1)), default=0))
    )
    where = place[rows["image"].to_numpy()], rows["column"].to_numpy()
    correct[where] = ~rows["success"].to_numpy()
    tried[where] = True
    return correct, tried


def union_accuracy(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str | None = None
) -> Share:
    """Share of images that are correct when clean and under every attack (`judged_attacks` if not given).

    A store of a `--union` run knows it for the deployed predictor only.
    """
    check_union_known(store, predictor, state)
    names = judged_attacks(store) if attacks is None else attacks
    correct, _ = outcomes(store, names, predictor=predictor, state=state)
    return wilson(int(correct.all(axis=1).sum()), len(correct))


def paper_minimum(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str | None = None
) -> Share:
    """The lowest accuracy under one of the attacks (`minimum_attacks` if not given), as the paper reports.

    An attack with a limit is judged on the images it was run on. The interval comes from resampling the images: a
    minimum of many shares is lower than each of them by chance.
    """
    names = _finished(store, minimum_attacks(store) if attacks is None else attacks)
    correct, tried = outcomes(store, names, predictor=predictor, state=state)
    return bootstrap_minimum(correct[:, 1:], tried[:, 1:])


def aa_accuracy(store: Store, *, predictor: str = DEPLOYED, state: str | None = None) -> dict[str, Share]:
    """Accuracy under AutoAttack with standard budgets at the threat, by attack name; empty for a `--union` run.

    It is the share of images that are correct before and after, of those it was run on. The manifest names its oracle.
    """
    if store.manifest.union:
        return {}
    configs = store.manifest.attacks
    standard = [name for name in judged_attacks(store) if configs[name].spec.is_standard_autoattack]
    names = [name for name in standard if store.complete(name)]
    correct, tried = outcomes(store, names, predictor=predictor, state=state)
    return {
        name: wilson(int((correct[:, 0] & correct[:, k])[tried[:, k]].sum()), int(tried[:, k].sum()))
        for k, name in enumerate(names, start=1)
    }


def entropy_change(
    store: Store, attacks: Sequence[str] | None = None, *, predictor: str = DEPLOYED, state: str | None = None
) -> pl.DataFrame:
    """Tables 6 and 7: per attack, P and Delta-H.

    Returns:
        attack, share (of images whose clean entropy is lower than the attacked one), ties (share of images whose two
        entropies are equal), difference (mean of attacked minus clean entropy, nats), images. Over the images with
        finite entropies; null without any.
    """
    column = _column(predictor, state)
    clean = store.clean().filter(column).select("image", clean="entropy")
    finite = pl.col("clean").is_finite() & pl.col("entropy").is_finite()
    change = pl.col("entropy").cast(pl.Float64) - pl.col("clean").cast(pl.Float64)
    return (
        store.rows(grid_attacks(store) if attacks is None else attacks)
        .filter(column)
        .join(clean, on="image", maintain_order="left")
        .group_by("attack", maintain_order=True)
        .agg(
            share=(change > 0).filter(finite).mean(),
            ties=(change == 0).filter(finite).mean(),
            difference=change.filter(finite).mean(),
            images=finite.sum(),
        )
        .collect()
    )


def entropies_are_rounded(store: Store) -> bool:
    """Whether the entropies of a store were rounded to three significant digits, as those of some copies are."""
    entropy = pl.col("entropy").filter(pl.col("entropy").is_finite())
    rounded = store.clean().select(same=(entropy.round_sig_figs(3) == entropy).all(), many=entropy.n_unique() > 10)
    return all(rounded.collect().row(0))


def strongest(store: Store, *, predictor: str = DEPLOYED) -> Strongest:
    """The strongest attack of the grid, at the deployed state; the first in the manifest if tied."""
    names = _finished(store, grid_attacks(store))
    shares = attack_shares(store, names, predictor=predictor)
    name = min(shares, key=lambda name: shares[name].value)
    options = store.manifest.attacks[name].spec.oracle_options
    return Strongest(name, options["state"], options["steps"], options["damping"], shares[name], dict(options))


def by_oracle(store: Store, *, predictor: str = DEPLOYED, state: str | None = DEPLOYED) -> pl.DataFrame:
    """Figs. 3a and 5: accuracy under each attack of the grid.

    Returns:
        The columns of `accuracy`, and the oracle's i, K, damping, aware.
    """
    table = accuracy(store, grid_attacks(store), predictor=predictor, state=state)
    options = [store.manifest.attacks[name].spec.oracle_options for name in table["attack"]]
    return table.with_columns(
        pl.Series("i", [o["state"] for o in options], dtype=pl.Int32),
        pl.Series("K", [o["steps"] for o in options], dtype=pl.Int32),
        pl.Series("damping", [o["damping"] for o in options], dtype=pl.Float64),
        pl.Series("aware", [o.get("aware", False) for o in options], dtype=pl.Boolean),
    )


def strongest_oracles(store: Store, count: int) -> list[tuple[int, int, float]]:
    """The (i, K_a, lambda) of the strongest attacks, strongest first; ties in the order of the manifest."""
    _finished(store, grid_attacks(store))
    oracles = by_oracle(store).sort("accuracy", maintain_order=True).select("i", "K", "damping")
    return oracles.unique(maintain_order=True).head(count).rows()


def strongest_by_state(store: Store, *, predictor: str = DEPLOYED) -> pl.DataFrame:
    """Table 8: the strongest K_a for each lambda and state i: aware, damping, i, K, attack, accuracy, low, high."""
    table = by_oracle(store, predictor=predictor)
    return (
        table.sort("aware", "damping", "i", "accuracy", "K")
        .group_by("aware", "damping", "i", maintain_order=True)
        .first()
        .select("aware", "damping", "i", "K", "attack", "accuracy", "low", "high")
    )


def by_setting(store: Store) -> pl.DataFrame:
    """Table 5: the paper's minimum for every predictor with an entropy reduction, over the oblivious grid.

    The oblivious grid's images do not depend on the defence, so one store can score many settings on them.

    Returns:
        predictor, variant, every (T_f), steps (R), accuracy, low, high, images.
    """
    names = [n for n in grid_attacks(store) if store.manifest.attacks[n].spec.group == "grid"]
    records = []
    for predictor, record in store.manifest.predictors.items():
        if record.entropy is not None:
            share = astuple(paper_minimum(store, names, predictor=predictor))
            records.append((predictor, record.entropy.words, record.entropy.every, record.entropy.steps, *share))
    columns = ["predictor", "variant", "every", "steps", *SHARE_COLUMNS]
    return pl.DataFrame(records, schema=columns, orient="row")


def transfer_matrix(stores: dict[str, Store], *, state: str | None = None) -> pl.DataFrame:
    """Table 3: the lowest accuracy on a target (row) under the attacks made against a source (column).

    Both are minima over the source's grid (`shown_from`); the diagonal is a store's own grid. A pair without results is
    missing.

    Returns:
        target, source, accuracy, low, high, attacks.
    """
    records = []
    for target, store in stores.items():
        for source, other in stores.items():
            names = [name for name in shown_from(other, store) if store.complete(name)]
            if names:
                share = paper_minimum(store, names, state=state)
                records.append((target, source, share.value, share.low, share.high, len(names)))
    columns = ["target", "source", "accuracy", "low", "high", "attacks"]
    return pl.DataFrame(records, schema=columns, orient="row")


def shown_from(source: Store, target: Store) -> list[str]:
    """Names of the target's attacks that are images of the source's grid; a store's own grid if both are the same.

    Images of a source that has changed since do not count. If the source has aware attacks, only these count: its
    oblivious images are those of its undefended model.
    """
    home, configs, own = source.folder.resolve(), source.manifest.attacks, grid_attacks(source)
    if home == target.folder.resolve():
        return own
    made = {name for name in own if configs[name].spec.group == "grid-aware"} or {*own}

    def shown(spec: AttackSpec) -> bool:
        if spec.attack != "stored" or source_at(spec.options["store"], target.folder) != home:
            return False
        name, unchanged = spec.options["attack"], spec.options["model"] == source.manifest.model.hash
        return unchanged and name in made and spec.options["hash"] == configs[name].hash

    return [name for name in judged_attacks(target) if shown(target.manifest.attacks[name].spec)]


def _at(state: str | None) -> pl.Expr:
    """Selects the rows of a state; None or "deployed" for the deployed one."""
    return pl.col("deployed") if state in (None, DEPLOYED) else pl.col("state") == state


def _column(predictor: str, state: str | None) -> pl.Expr:
    return (pl.col("predictor") == predictor) & _at(state)


def check_union_known(store: Store, predictor: str, state: str | None) -> None:
    """Refuse predictors and states that a `--union` run has no results for."""
    if store.manifest.union and (predictor != DEPLOYED or state not in (None, DEPLOYED)):
        raise IncompleteError(
            f"{store.folder} was evaluated with --union, where images that the deployed predictor fails on leave: the "
            "union of other predictors and states is not known; evaluate without --union into another folder"
        )


def _finished(store: Store, attacks: Sequence[str]) -> list[str]:
    """The names, if all these attacks have been run on every image."""
    if not attacks:
        raise IncompleteError(f"{store.folder} holds no such attacks: evaluate it with --suite grid first")
    if store.manifest.union:
        raise IncompleteError(
            f"{store.folder} was evaluated with --union, where broken images leave: a single attack's accuracy over "
            "the data set is not known; evaluate without --union into another folder"
        )
    check_complete(store, attacks)
    return list(attacks)


def check_complete(store: Store, attacks: Sequence[str]) -> None:
    """Refuse attacks that have not been run on every image."""
    missing = [name for name in attacks if not store.complete(name)]
    if missing:
        raise IncompleteError(
            f"{store.folder} lacks results of {len(missing)} of {len(attacks)} attacks ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}): run the same evaluation again, it resumes where it stopped"
        )
