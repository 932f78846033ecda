"""The numbers of a card: clean, PGD-10, strongest attack, AutoAttack, union, each with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.paired import tried_images
from robustdeq.evaluation.analysis.statistics import Difference, Share, bootstrap_difference, wilson
from robustdeq.report.results import Result
from robustdeq.report.results.complete import finished, once
from robustdeq.report.tables.numbers import origin, ready_attack, standard_autoattacks, strongest_autoattack

CLEAN, PGD, STRONGEST, AUTOATTACK, UNION = "clean", "PGD-10", "strongest attack", "AutoAttack", "union"
OTHER = "strongest other attack"
"""What the strongest attack is called beside an AutoAttack, which it leaves out."""
STRENGTHS = (CLEAN, PGD, STRONGEST, AUTOATTACK, UNION)
"""From no attack to all of them at once, in the order of the chart."""
LARGE = (CLEAN, STRONGEST, AUTOATTACK, UNION)
"""The numbers of a card."""

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Measure:
    """An accuracy with its interval, or the reason why there is none."""

    name: str
    share: Share | None
    said: str
    """What the number is about: the attack and the images, or why there is no number."""
    where: str = ""
    """Which rows of which store it comes from."""
    upper: bool = False
    """Whether unfinished attacks may lower it."""

    @property
    def value(self) -> str:
        """The accuracy in percent with one digit, marked if it is an upper bound."""
        if self.share is None:
            return DASH
        sign = "≤\N{NARROW NO-BREAK SPACE}" if self.upper else ""
        return f"{sign}{100 * self.share.value:.1f}"

    @property
    def interval(self) -> str:
        """The 95% interval in percent."""
        return "" if self.share is None else f"{100 * self.share.low:.1f}{DASH}{100 * self.share.high:.1f}"


@once
def measured(r: Result) -> dict[str, Measure]:
    """All numbers of a result by their names."""
    found = (_clean(r), _pgd(r), _strongest(r), _autoattack(r), _union(r))
    return {measure.name: measure for measure in found}


def paired_gain(r: Result, base: str) -> Difference | None:
    """Union accuracy minus that of another predictor of the same store, over the images that all attacks were run on.

    None before an attack is finished, and in a store made with `--union`, which does not know the other predictor's.
    """
    names = finished(r)
    if not names or r.manifest.union or not r.store.complete(None):
        return None
    own, static = (_survivors(r, names, predictor) for predictor in (r.predictor, base))
    return bootstrap_difference(static, own) if len(own) else None


def _survivors(r: Result, names: list[str], predictor: str) -> NDArray[np.bool_]:
    """Whether each image is right before and under all attacks, of the first images, on which all were run."""
    correct = metrics.outcomes(r.store, names, predictor=predictor)[0]
    return np.all(correct, axis=1)[: tried_images(r.store, names)]


def _clean(r: Result) -> Measure:
    if not r.store.complete(None):
        return Measure(CLEAN, None, "not finished")
    share = metrics.clean_accuracy(r.store, predictor=r.predictor)
    return Measure(CLEAN, share, _on(r, share), origin(r, "clean", "share with correct"))


def _pgd(r: Result) -> Measure:
    name = ready_attack(r)
    if name is None or name not in finished(r) or r.manifest.union:
        return Measure(PGD, None, "not run")
    share = metrics.attack_shares(r.store, [name], predictor=r.predictor)[name]
    return Measure(PGD, share, _on(r, share), origin(r, name, "share without success"))


def _strongest(r: Result) -> Measure:
    standard = {name for name, record in r.manifest.attacks.items() if record.spec.is_standard_autoattack}
    whole = metrics.whole_attacks(r.store)  # on the survivors of others an accuracy is that of these images alone
    names = [name for name in finished(r) if name in whole and name not in standard]
    if not names or r.manifest.union:
        return Measure(STRONGEST, None, "a union store does not know" if r.manifest.union else "none finished")
    shares = metrics.attack_shares(r.store, names, predictor=r.predictor)
    lowest = min(shares, key=lambda name: (shares[name].value, name))
    share = metrics.paper_minimum(r.store, names, predictor=r.predictor)
    said = f"{lowest}, of {len(names)}{_on(r, share, '; ')}" if len(names) > 1 else f"{lowest}{_on(r, share, '; ')}"
    how = f"minimum over {len(names)} attacks of the share without success"
    return Measure(STRONGEST, share, said, origin(r, "all attacks but AutoAttack", how))


def _autoattack(r: Result) -> Measure:
    name = strongest_autoattack(r)
    if name is None:
        if r.predictor != "deployed":
            return Measure(AUTOATTACK, None, "not run on it")
        planned = any(record.spec.is_standard_autoattack for record in r.manifest.attacks.values())
        return Measure(AUTOATTACK, None, "not finished" if planned else "not run")
    share = standard_autoattacks(r)[name]
    return Measure(AUTOATTACK, share, _on(r, share), origin(r, f"clean and {name}", "share correct under both"))


def _union(r: Result) -> Measure:
    planned, names = metrics.judged_attacks(r.store), finished(r)
    if not names or not r.store.complete(None):
        return Measure(UNION, None, "none finished")
    if r.manifest.union:
        share = metrics.union_accuracy(r.store, names, predictor=r.predictor)
    else:
        right = _survivors(r, names, r.predictor)
        share = wilson(int(right.sum()), len(right))
    some = f"{len(names)} of {len(planned)}" if names != planned else f"all {len(names)}"
    where = origin(r, f"clean and {some} attacks, the images that all were run on", "never broken")
    return Measure(UNION, share, f"{some}{_on(r, share, '; ')}", where, upper=names != planned)


def _on(r: Result, share: Share, joint: str = "") -> str:
    """How many images a number is about, where these are not all."""
    return "" if share.images == r.manifest.data.images else f"{joint}first {share.images:,} images"
