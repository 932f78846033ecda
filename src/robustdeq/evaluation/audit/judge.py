"""The audit of a store: accuracies, flags and verdict. A finished one is judged again from its store alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Difference, Share, bootstrap_difference
from robustdeq.evaluation.audit.conclusion import Word, conclude
from robustdeq.evaluation.audit.cost import seconds_per_image
from robustdeq.evaluation.audit.flags import Flag
from robustdeq.evaluation.audit.measure import measured_flags
from robustdeq.evaluation.audit.probes import Probes, Views, probe
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.store.typed import read_record
from robustdeq.evaluation.suites.build import build_oracle
from robustdeq.host.files import write_atomically

FILE = "audit.json"


@dataclass(frozen=True)
class Audit:
    """Flags and verdict of the audit, with the accuracies they rest on."""

    verdict: Word
    """masked: the accuracies overstate robustness; broken: hardly any image is robust; no-gain: a gain over the static
    base that matters is excluded; stands: shown beyond chance; undecided: the images support none of these."""
    reason: str
    """One sentence."""
    decides: int | None
    """Number of images that would decide an undecided verdict; None if more images would not."""
    flags: list[Flag]
    """Every flag that was measured: raised, cleared or undecided."""
    clean: Share
    union: Share
    base_clean: Share | None
    base_union: Share | None
    gain: Difference | None
    """Union accuracy minus that of the static base, paired image by image."""
    attacks: dict[str, Share]
    base_attacks: dict[str, Share]
    survivors: dict[str, Share]
    """Of attacks on the survivors of others: the share of these that is still right."""
    probes: Probes
    seconds: float
    """Seconds per image of a prediction; shown, never compared."""
    base_seconds: float | None

    @property
    def raised(self) -> list[Flag]:
        """The flags that are raised."""
        return [flag for flag in self.flags if flag.state == "raised"]

    @property
    def undecided(self) -> list[Flag]:
        """The flags that more images would decide."""
        return [flag for flag in self.flags if flag.state == "undecided"]

    def table(self) -> str:
        """The accuracies of the predictor and of its static base, the flags, and the verdict, as text."""

        def line(name: str, *values: Share | Difference | str | None) -> str:
            return f"{name:32}" + "".join(f"  {value!s:>26}" for value in values if value is not None)

        beside, costs = self.base_union is not None, (self.probes.cost, self.probes.base_cost)
        seconds = (self.seconds, self.base_seconds)
        lines = [
            line("accuracy", "deployed", "static base" if beside else None),
            line("clean", self.clean, self.base_clean),
            *(line(name, share, self.base_attacks.get(name)) for name, share in self.attacks.items()),
            *(line(f"{name}, survivors", share) for name, share in self.survivors.items()),
            line("union", self.union, self.base_union),
            *([] if self.gain is None else [line("gain over static base", self.gain)]),
            line("evaluations of f", *(f"{cost:.1f}" for cost in costs[: 1 + beside])),
            line("seconds per image", *(f"{value:.2g}" for value in seconds if value is not None)),
        ]
        return "\n".join([*lines, *(f"flag {flag}" for flag in self.flags), self.last_line()])

    def last_line(self) -> str:
        """The verdict and its reason."""
        return f"verdict: {self.verdict}: {self.reason}"


def finish_audit(
    plan: Plan, store: Store, x: Tensor, y: Tensor, *, write: bool, report: Callable[[str], None]
) -> Audit:
    """Probe the predictor, judge the results, and write both to the store if `write`; reports what it is doing."""
    images, subject = plan.subject.pixels(x), plan.subject
    sample, base = images[: plan.wanted.batch_size], plan.scored.get("base")
    views, labels, before = _views(plan), y.to(images.device), _before(store)

    def probed(done: int) -> None:
        report(f"probing the predictor, image {done + 1} of {len(x)}")

    probes = probe(subject, views, images, labels, plan.wanted.threat, before, probed)
    seconds = seconds_per_image(subject, sample)
    audit = judge(store, probes, seconds, None if base is None else seconds_per_image(base, sample))
    if write:
        write_atomically(store.folder / FILE, (json.dumps(asdict(audit), indent=2) + "\n").encode())
    return audit


def _views(plan: Plan) -> Views:
    """The oracles of the plan that the probes look through."""
    specs = {spec.name: spec for spec in plan.specs}
    usual = build_oracle(specs["apgd-ce"], plan.subject)
    if plan.subject.defended:
        return Views(usual, None)
    return Views(usual, build_oracle(specs["exact"], plan.subject) if "exact" in specs else usual)


def _before(store: Store) -> Tensor:
    """Predictions on the clean images, as they were before the attacks."""
    rows = store.clean().filter(pl.col("deployed") & (pl.col("predictor") == metrics.DEPLOYED)).sort("image")
    return torch.tensor(rows.select("prediction").collect()["prediction"].to_list())


def judge(store: Store, probes: Probes, seconds: float, base_seconds: float | None) -> Audit:
    """The audit of what a store holds, with what was measured on the predictor itself."""
    inside, has_base = metrics.judged_attacks(store), "base" in store.manifest.predictors
    gain, sides = None, (0, 0)
    if has_base:
        own, static = (
            np.all(metrics.outcomes(store, inside, predictor=name)[0], axis=1) for name in (metrics.DEPLOYED, "base")
        )
        gain, sides = bootstrap_difference(static, own), (int((own & ~static).sum()), int((static & ~own).sum()))
    flags, union = measured_flags(store, probes), metrics.union_accuracy(store, inside)
    found = conclude(flags, union, gain, sides)
    return Audit(
        verdict=found.verdict,
        reason=found.reason,
        decides=found.decides,
        flags=flags,
        clean=metrics.clean_accuracy(store),
        union=union,
        base_clean=metrics.clean_accuracy(store, predictor="base") if has_base else None,
        base_union=metrics.union_accuracy(store, inside, predictor="base") if has_base else None,
        gain=gain,
        attacks=metrics.attack_shares(store),
        base_attacks=metrics.attack_shares(store, predictor="base") if has_base else {},
        survivors=_on_survivors(store, inside),
        probes=probes,
        seconds=seconds,
        base_seconds=base_seconds,
    )


def _on_survivors(store: Store, inside: list[str]) -> dict[str, Share]:
    """Accuracy of the predictor that each attack on survivors was aimed at, on the images that it was run on."""
    specs = [record.spec for name, record in store.manifest.attacks.items() if name in inside]
    found: dict[str, Share] = {}
    for spec in specs:
        if spec.survivors is not None:
            found |= metrics.attack_shares(store, [spec.name], predictor=spec.survivors)
    return found


def read_audit(store: Store) -> Audit | None:
    """The audit of a store, judged again by today's rules from its attacks; None if it was not audited.

    What only the predictor itself can show was measured when it was audited and is read from the store.
    """
    path = store.folder / FILE
    if not path.is_file():
        return None
    try:
        kept: dict[str, Any] = json.loads(path.read_bytes())
        probes, seconds, base_seconds = _probes(kept["probes"]), kept["seconds"], kept["base_seconds"]
        if not all(isinstance(value, int | float) for value in (seconds, base_seconds or 0.0)):
            raise TypeError(f"seconds: {seconds!r}, base_seconds: {base_seconds!r}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): run the audit again into the same folder") from None
    return judge(store, probes, seconds, base_seconds)


def _probes(kept: Mapping[str, Any]) -> Probes:
    """The probes of an audit; what earlier versions did not measure keeps its default."""
    probes: Probes = read_record(Probes, kept)
    return probes
