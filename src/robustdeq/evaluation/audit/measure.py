"""What raises the flags: measurements on the attacks of a store, and those that probes have made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.audit.flags import FLAGS, Flag, paired_flag, share_flag
from robustdeq.evaluation.audit.probes import Probes
from robustdeq.evaluation.store.store import Store


def measured_flags(store: Store, probes: Probes) -> list[Flag]:
    """All flags that the store's attacks and the probes allow to judge."""
    found = {flag.name: flag for flag in (*_probed(probes), *_attacked(store), *_solved(store))}
    if store.manifest.dynamic:  # only predictors without dynamics are attacked and judged in expectation
        found["randomness"] = replace(found["randomness"], forbids=True)
    return [found[name] for name in FLAGS if name in found]


def _probed(probes: Probes) -> Iterator[Flag]:
    yield share_flag("vanishing-gradients", probes.vanishing, probes.images)
    yield share_flag("randomness", probes.random, probes.images)
    yield share_flag("batch-dependence", probes.batch, probes.images)
    if probes.false_gradient is not None:
        yield share_flag("false-gradient", probes.false_gradient, probes.sloped)
    if probes.gradient_mode is not None:
        yield share_flag("gradient-mode", probes.gradient_mode, probes.images)
    if probes.attacked_right is not None and probes.attacked_wrong is not None:
        yield paired_flag("memory", probes.attacked_right, probes.attacked_wrong, probes.images)
    if probes.drift is not None:
        yield share_flag("drift", probes.drift, probes.images)


def _attacked(store: Store) -> Iterator[Flag]:
    configs, inside = store.manifest.attacks, metrics.judged_attacks(store)
    black = [name for name in inside if configs[name].spec.black]
    white = [name for name in inside if name not in black]
    by_white, by_black = (np.all(metrics.outcomes(store, names)[0], axis=1) for names in (white, black))
    if black:
        yield share_flag("black-box-beats-white-box", float((by_white & ~by_black).mean()), store.manifest.data.images)
    short = next((name for name in ("pgd-ready", "pgd-direct") if name in configs), None)
    long = next((name for name in configs if name.removeprefix("pgd-").isdigit()), None)
    if short and long:
        right, _ = metrics.outcomes(store, [short, long])
        by_short, by_long = ~right[:, 1], ~right[:, 2]
        only_short, only_long = int((by_short & ~by_long).sum()), int((by_long & ~by_short).sum())
        yield paired_flag("more-steps-hurt", only_short, only_long, len(right))
    if "large-eps" in configs:
        share = metrics.attack_shares(store, ["large-eps"])["large-eps"]
        yield share_flag("large-eps", share.value, share.images)


def _solved(store: Store) -> Iterator[Flag]:
    record = store.manifest.predictors[metrics.DEPLOYED]
    tol, states = _tolerance(record.config), [int(name) for name in record.states if name.isdigit()]
    if tol is None or not states:
        return
    rows = store.clean().filter((pl.col("predictor") == metrics.DEPLOYED) & (pl.col("state") == str(max(states))))
    residual = rows.filter(pl.col("residual").is_not_null()).select(pl.col("residual") > tol).collect()["residual"]
    if len(residual):
        yield share_flag("non-convergence", int(residual.sum()) / len(residual), len(residual))


def _tolerance(config: Any) -> float | None:
    """The tolerance of the model inside all defences, from what the store says of the predictor."""
    while isinstance(config, Mapping):
        if "tol" in config:
            return float(config["tol"])
        config = config.get("predictor")
    return None
