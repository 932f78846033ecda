"""How the audit reaches its verdict: measurements raise flags, and flags and accuracies give the verdict."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from torch import Tensor

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Difference, Share, bootstrap_difference
from robustdeq.evaluation.audit.probes import Probes, probe, seconds_per_image
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.build import build_oracle
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.host.files import write_atomically

FILE = "audit.json"
TOLERATED = 0.01
"""Share of images that may contradict an expectation before a flag is raised."""
VANISHING = 0.05
"""Share of images that may have no gradient before a flag is raised."""
UNCONVERGED = 0.5
"""Share of images whose solver may miss its tolerance before a flag is raised."""
BROKEN = 0.05
"""Robust accuracy at or below which the verdict is broken."""

FLAGS = {
    "vanishing-gradients": "gradients are zero where attacks start: white-box attacks are blind",
    "black-box-beats-white-box": "Square or transferred images break what no white-box attack breaks",
    "more-steps-hurt": "more steps break fewer images than 10",
    "large-eps": "accuracy does not reach 0 at a radius that hides the image",
    "randomness": "two passes on the same image differ: attacks need expectation over transformation",
    "batch-dependence": "predictions depend on the other images of the batch: images are not judged by themselves",
    "non-convergence": "the solver does not reach the equilibrium: gradients that assume it are wrong",
}
"""Flags and their meaning; docs/flags.md explains each."""
BLACK_BOX = ("square", "stored")
"""Attacks that see no gradient; those on the undefended base count as black-box too."""
MASKING = ("vanishing-gradients", "black-box-beats-white-box", "more-steps-hurt", "large-eps")
"""Flags that mean that white-box attacks overstate robustness."""


@dataclass(frozen=True)
class Flag:
    """A measurement that makes the accuracies suspect."""

    name: str
    meaning: str
    value: float
    """Measured value."""
    limit: float
    """Largest value that raises no flag."""


@dataclass(frozen=True)
class Audit:
    """Flags and verdict of the audit, with the accuracies they rest on."""

    verdict: str
    """masked: white-box attacks overstate robustness; broken: hardly any image is robust; no-gain: these images show no
    gain over the static base; stands: none of these."""
    flags: list[Flag]
    clean: Share
    union: Share
    base_clean: Share | None
    base_union: Share | None
    gain: Difference | None
    """Union accuracy minus that of the static base, paired image by image."""
    attacks: dict[str, Share]
    base_attacks: dict[str, Share]
    probes: Probes
    seconds: float
    """Seconds per image of a prediction; shown, never compared."""
    base_seconds: float | None

    def table(self) -> str:
        """The accuracies of the predictor and of its static base, the flags, and the verdict, as text."""

        def line(name: str, *values: Share | Difference | str | None) -> str:
            return f"{name:24}" + "".join(f"  {value!s:>26}" for value in values if value is not None)

        beside, costs = self.base_union is not None, (self.probes.cost, self.probes.base_cost)
        seconds = (self.seconds, self.base_seconds)
        lines = [
            line("accuracy", "deployed", "static base" if beside else None),
            line("clean", self.clean, self.base_clean),
            *(line(name, share, self.base_attacks.get(name)) for name, share in self.attacks.items()),
            line("union", self.union, self.base_union),
            *([] if self.gain is None else [line("gain over static base", self.gain)]),
            line("evaluations of f", *(f"{cost:.1f}" for cost in costs[: 1 + beside])),
            line("seconds per image", *(f"{value:.2g}" for value in seconds if value is not None)),
        ]
        lines += [f"flag {f.name}: {f.meaning} ({f.value:.1%}, tolerated {f.limit:.1%})" for f in self.flags]
        return "\n".join([*lines, f"verdict: {self.verdict}"])


def finish_audit(plan: Plan, store: Store, x: Tensor, y: Tensor, *, write: bool) -> Audit:
    """Probe the predictor, judge the results, and write both to the store if `write`."""
    images = plan.subject.pixels(x)
    oracle = build_oracle(next(spec for spec in plan.specs if spec.name == "apgd-ce"), plan.subject)
    probes = probe(plan.subject, oracle, images, y.to(images.device))
    sample = images[: plan.wanted.batch_size]
    base = plan.scored.get("base")
    seconds = seconds_per_image(plan.subject, sample)
    base_seconds = None if base is None else seconds_per_image(base, sample)
    inside = metrics.judged_attacks(store)
    flags = [
        Flag(name, FLAGS[name], value, limit)
        for name, value, limit in _measurements(store, plan.subject, probes, inside)
        if value > limit
    ]
    union = metrics.union_accuracy(store, inside)
    has_base = "base" in store.manifest.predictors
    gain = None
    if has_base:
        own, static = (metrics.outcomes(store, inside, predictor=name)[0] for name in (metrics.DEPLOYED, "base"))
        gain = bootstrap_difference(np.all(static, axis=1), np.all(own, axis=1))
    audit = Audit(
        verdict=_verdict(flags, union, gain),
        flags=flags,
        clean=metrics.clean_accuracy(store),
        union=union,
        base_clean=metrics.clean_accuracy(store, predictor="base") if has_base else None,
        base_union=metrics.union_accuracy(store, inside, predictor="base") if has_base else None,
        gain=gain,
        attacks=metrics.attack_shares(store),
        base_attacks=metrics.attack_shares(store, predictor="base") if has_base else {},
        probes=probes,
        seconds=seconds,
        base_seconds=base_seconds,
    )
    if write:
        write_atomically(store.folder / FILE, (json.dumps(asdict(audit), indent=2) + "\n").encode())
    return audit


def _verdict(flags: list[Flag], union: Share, gain: Difference | None) -> str:
    if any(flag.name in MASKING for flag in flags):
        return "masked"
    if union.value <= BROKEN:
        return "broken"
    if gain is not None and (gain.value <= TOLERATED or gain.low <= 0):
        return "no-gain"
    return "stands"


def _measurements(store: Store, subject: Subject, probes: Probes, inside: list[str]) -> list[tuple[str, float, float]]:
    """What the flags are raised by: name of the flag, measured value, largest value that raises no flag."""
    configs = store.manifest.attacks
    black = [name for name in inside if configs[name].spec.attack in BLACK_BOX or configs[name].spec.on == "base"]
    white = [name for name in inside if name not in black]
    by_white, by_black = (metrics.outcomes(store, names)[0] for names in (white, black))
    only_black = by_white.all(axis=1) & ~by_black.all(axis=1)
    accuracies = {name: share.value for name, share in metrics.attack_shares(store).items()}
    short = next(name for name in ("pgd-ready", "pgd-direct") if name in accuracies)
    long = next(name for name in accuracies if name.removeprefix("pgd-").isdigit())
    found = [
        ("vanishing-gradients", probes.vanishing, VANISHING),
        ("black-box-beats-white-box", float(only_black.mean()), TOLERATED),
        ("more-steps-hurt", accuracies[long] - accuracies[short], TOLERATED),
        ("large-eps", accuracies["large-eps"], TOLERATED),
        ("randomness", probes.random, 0.0),
        ("batch-dependence", probes.batch, TOLERATED),
    ]
    if subject.dynamic is not None:
        last = str(subject.states)
        residual = store.clean().filter((pl.col("predictor") == "deployed") & (pl.col("state") == last))
        share = residual.select((pl.col("residual") > subject.dynamic.base.tol).mean()).collect().item()
        found.append(("non-convergence", float(share or 0.0), UNCONVERGED))
    return found
