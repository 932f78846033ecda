"""`robustdeq.benchmark`: one call to the numbers that an honest comparison needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.evaluation.audit.judge import Audit
from robustdeq.evaluation.evaluate import checked_first_logits, chosen_threat, evaluate, load_images
from robustdeq.evaluation.run.estimate import FEW, estimate_seconds
from robustdeq.evaluation.run.progress import Progress
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Callee, Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.evaluation.verdict import Verdict
from robustdeq.threat import Threat

SUITE = "benchmark"
"""The audit, and AutoAttack with its standard budgets."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Accuracies of a predictor with 95% intervals, and the flags that say whether to believe them."""

    name: str
    """Name of the model."""
    data: str
    images: int
    threat: Threat
    state: str
    """The state that predictions are read from, such as 8 or final."""
    clean: Share
    autoattack: Share | None
    """Accuracy under AutoAttack with its standard budgets; None where it is not defined (fewer than four classes)."""
    union: Share
    """Accuracy under the worst case over all attacks, image by image: the number to compare by."""
    audit: Audit
    """Flags with intervals, and the verdict that they and the accuracies support."""
    seconds: float
    """Time that attacks and scoring took, over all runs that went into the store; shown, never compared."""
    notes: list[str]
    folder: Path
    """The store, which holds all results."""

    def table(self) -> str:
        """The result as text."""
        lines = {"clean": self.clean, "AutoAttack": self.autoattack, "union of all attacks": self.union}
        text = [
            f"{self.name} on {self.images} images of {self.data}, {self.threat}, read at state {self.state}",
            f"{'accuracy':20}   value   95% interval",
        ]
        for name, share in lines.items():
            shown = f"{share.value:6.2%}  [{share.low:6.2%}, {share.high:6.2%}]" if share else "not defined here"
            text.append(f"{name:20}  {shown}")
        text.append(f"verdict: {self.audit.verdict}: {self.audit.reason}")
        text += [f"flag {flag}" for flag in self.audit.flags if flag.state != "cleared"]
        cleared = [flag.name for flag in self.audit.flags if flag.state == "cleared"]
        text += [f"cleared: {', '.join(cleared)}"] if cleared else []
        text += [f"note: {note}" for note in self.notes]
        return "\n".join([*text, f"{self.seconds:,.0f} s; results: {self.folder}"])

    def __str__(self) -> str:
        return self.table()

    def as_json(self) -> dict[str, Any]:
        """All numbers as JSON; the audit has its own file in the store too."""
        parts = ("value", "low", "high", "images")

        def share(value: Share | None) -> dict[str, Any] | None:
            return None if value is None else {part: getattr(value, part) for part in parts}

        return {
            **{name: getattr(self, name) for name in ("name", "data", "images", "state", "seconds", "notes")},
            "threat": {"norm": type(self.threat).__name__, "eps": self.threat.eps},
            **{name: share(getattr(self, name)) for name in ("clean", "autoattack", "union")},
            "verdict": self.audit.verdict,
            "reason": self.audit.reason,
            "flags": [
                {name: getattr(flag, name) for name in ("name", "state", "value", "low", "high", "limit", "images")}
                for flag in self.audit.flags
            ],
            "folder": str(self.folder),
        }


def benchmark(
    predictor: Callee,
    data: tuple[Tensor, Tensor] | str,
    *,
    n: int = 1000,
    threat: Threat | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    seed: int = 0,
    batch_size: int = 100,
    data_root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    say: Callable[[str], None] | None = print,
    report: Callable[[Progress], None] | None = None,
) -> Benchmark:
    """Clean accuracy, AutoAttack, the union of all attacks of the audit, and its flags, in one call.

    It runs `evaluate` with the suite "benchmark". The same call resumes what was interrupted.

    Args:
        predictor: Pixels in [0, 1] to logits: a model, a defence around one, or any differentiable function. It is
            judged as it is, a DEQ by its final state.
        data: Name of a data set with test images, or images (B, C, H, W) in [0, 1] and labels (B,).
        n: Number of images, the first of the data.
        threat: Ball that adversarial images stay in; by default Linf with the eps of the model's checkpoint, or 8/255.
        out: Folder of the results; by default a folder in runs/benchmark that belongs to these weights and settings.
        name: Name of the model; by default its class or function.
        seed: Seed of everything random.
        batch_size: Images attacked at a time.
        data_root: Folder of a named data set.
        data_options: Options of a named data set.
        command: Command line that this call stands for.
        say: Called with the expected time before the attacks start, and with what so many images can tell.
        report: Progress callback.
    """
    subject = Subject(predictor)
    threat = chosen_threat(subject, threat)
    name = str(name or getattr(predictor, "__qualname__", type(predictor).__name__))
    x, y, record = load_images(data, n, data_root, data_options or {})
    folder = _default_folder(subject, name, [record.sha256, str(threat), seed]) if out is None else Path(out)
    store = Store(folder)
    if say is not None:
        classes = checked_first_logits(subject, x, y).shape[1]
        specs = make_suite(SUITE, Context(subject, threat, store=store, classes=classes, data=record)).specs
        if store.read_manifest() is not None:
            specs = [spec for spec in specs if spec.name not in store.attacks or not store.complete(spec.name)]
        seconds = estimate_seconds(specs, subject, x, y, seed)
        if specs:
            few = min(FEW, len(y))
            say(f"{len(specs)} attacks on {len(y)} images take about {_spoken(seconds)} (measured on {few} of them)")
    verdict = evaluate(
        predictor,
        data,
        SUITE,
        folder,
        threat=threat,
        seed=seed,
        batch_size=batch_size,
        limit=n,
        name=name,
        data_root=data_root,
        data_options=data_options,
        command=command,
        say=say,
        report=report,
    )
    return _read(verdict, name, record.name, threat, subject.deployed_state)


def _read(verdict: Verdict, name: str, data: str, threat: Threat, state: str) -> Benchmark:
    assert verdict.audit is not None  # the suite is audited and has no time budget
    return Benchmark(
        name=name,
        data=data,
        images=verdict.clean.images,
        threat=threat,
        state=state,
        clean=verdict.clean,
        autoattack=next(iter(verdict.aa.values()), None),
        union=verdict.union,
        audit=verdict.audit,
        seconds=float(verdict.store.times()["seconds"].sum()),
        notes=verdict.notes,
        folder=verdict.folder,
    )


def _default_folder(subject: Subject, name: str, settings: list[Any]) -> Path:
    key = json.dumps([subject.describe(), *settings], sort_keys=True, default=str)
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")
    return Path("runs/benchmark") / f"{safe}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _spoken(seconds: float) -> str:
    """A duration in the unit that suits it."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} s"
