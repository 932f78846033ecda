"""The result of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.evaluation.audit.judge import Audit
from robustdeq.evaluation.run.progress import Interval
from robustdeq.evaluation.store.store import Store


@dataclass(frozen=True)
class Verdict:
    """Accuracies of the deployed predictor, each with a 95% interval; `store` holds all results."""

    store: Store
    complete: bool
    """Whether every work item of the suite is done; otherwise a time budget ended the run."""
    clean: Share
    attacks: dict[str, Share]
    """Accuracy under each finished attack; empty under `union`, where attacks see only the images that are left."""
    minimum: Share | None
    """The lowest accuracy under an attack of the grid, as the paper reports; None without a complete grid."""
    union: Share
    """Accuracy under the worst case over all attacks, image by image."""
    aa: dict[str, Share]
    """Accuracy under AutoAttack with standard budgets, by attack name."""
    bounds: Interval
    """Interval in which the union accuracy will lie when everything is done."""
    notes: list[str]
    """What the reader of the results must know."""
    audit: Audit | None = None
    """Flags and verdict, if the suite was the audit."""
    given_up: str | None = None
    """The attack that a time budget cut off; its batch under way is not stored."""

    @property
    def folder(self) -> Path:
        """Folder of the store."""
        return self.store.folder

    def as_json(self) -> dict[str, Any]:
        """All numbers, and the audit with its flags if there is one; `store` is its folder, NaN becomes null."""
        content: dict[str, Any] = {**vars(self), "store": str(self.folder)}
        return {name: _plain(value) for name, value in content.items()}

    def table(self) -> str:
        """The result as text, one line per number; the grid is summed up by its minimum, an audit has its own table."""
        if self.audit is not None:
            return "\n".join([self.audit.table(), *(f"note: {note}" for note in self.notes)])
        lines = [("clean", self.clean)]
        grid = set(metrics.minimum_attacks(self.store))
        lines += [(name, share) for name, share in self.attacks.items() if name not in grid or len(grid) == 1]
        if self.minimum is not None and len(grid) > 1:
            lines.append((f"paper-minimum of {len(grid)} attacks", self.minimum))
        lines.append(("union", self.union))
        width = max(len(name) for name, _ in [*lines, ("accuracy under", self.clean)])
        text = [f"{'accuracy under':{width}}   value   95% interval      images"]
        for name, share in lines:
            if not share.images:
                text.append(f"{name:{width}}  nothing is done yet")
                continue
            text.append(f"{name:{width}}  {share.value:6.2%}  [{share.low:6.2%}, {share.high:6.2%}]  {share.images:6d}")
        if not self.complete:
            text.append(
                f"not complete: the union's accuracy will lie in [{self.bounds.low:.2%}, {self.bounds.high:.2%}]"
            )
        if self.given_up is not None:
            text.append(
                f"the time budget ended within {self.given_up}, whose batch under way is lost: give more time, or "
                "resume with a smaller --batch-size (into another --out if this one refuses it)"
            )
        return "\n".join([*text, *(f"note: {note}" for note in self.notes)])

    def __str__(self) -> str:
        return self.table()


def _plain(value: Any) -> Any:
    """A value in terms of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def read_verdict(
    store: Store, *, complete: bool, bounds: Interval, audit: Audit | None = None, given_up: str | None = None
) -> Verdict:
    """The verdict from the results of a store."""
    union_mode, grid = store.manifest.union, metrics.minimum_attacks(store)
    finished = [] if union_mode else [name for name in metrics.whole_attacks(store) if store.complete(name)]
    return Verdict(
        store=store,
        complete=complete,
        clean=metrics.clean_accuracy(store),
        attacks=metrics.attack_shares(store, finished),
        minimum=metrics.paper_minimum(store) if grid and set(grid) <= set(finished) else None,
        union=metrics.union_accuracy(store),
        aa={} if union_mode else metrics.aa_accuracy(store),
        bounds=bounds,
        notes=list(store.manifest.notes),
        audit=audit,
        given_up=given_up,
    )
