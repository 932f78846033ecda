"""The answer of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.statistics import Share
from robustdeq.evaluation.audit.judge import Audit
from robustdeq.evaluation.run.bounds import Interval
from robustdeq.evaluation.store.store import Store


@dataclass(frozen=True)
class Verdict:
    """Accuracies of the deployed predictor, each with a 95% interval; `store` has everything else."""

    store: Store
    complete: bool
    """Every item of the suite is done; otherwise a time budget ended it."""
    clean: Share
    attacks: dict[str, Share]
    """Under each finished attack; empty under `union`, where attacks face only the images that are left."""
    minimum: Share | None
    """The lowest of the grid's accuracies, as the paper reports; None without a complete grid."""
    union: Share
    """Per image the worst case over everything that was run."""
    aa: dict[str, Share]
    """Under AutoAttack with standard budgets."""
    bounds: Interval
    """Where the union's accuracy lies when everything is done."""
    notes: list[str]
    audit: Audit | None = None
    """What the audit found, if the suite was the audit."""
    given_up: str | None = None
    """What a time budget cut off: nothing of it is stored."""

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self.store.folder

    def table(self) -> str:
        """Plain text: one line per number; of a grid its extremes. An audit has a table of its own."""
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
                f"the time ended within {self.given_up}, whose batch in hand is lost: give more, or go on with "
                "a smaller --batch-size (into another --out where this one refuses it)"
            )
        return "\n".join([*text, *(f"note: {note}" for note in self.notes)])


def read_verdict(
    store: Store, *, complete: bool, bounds: Interval, audit: Audit | None = None, given_up: str | None = None
) -> Verdict:
    """From the store."""
    shares: dict[str, Share] = {}
    minimum = None
    union_mode = store.manifest.union
    finished = [name for name in store.attacks if store.complete(name)]
    if finished and not union_mode:
        for row in metrics.accuracy(store, finished, predictor=metrics.DEPLOYED).iter_rows(named=True):
            shares[row["attack"]] = Share(row["accuracy"], row["low"], row["high"], row["images"])
        grid = metrics.minimum_attacks(store)
        minimum = metrics.paper_minimum(store) if grid and set(grid) <= set(finished) else None
    return Verdict(
        store=store,
        complete=complete,
        clean=metrics.clean_accuracy(store),
        attacks=shares,
        minimum=minimum,
        union=metrics.union_accuracy(store),
        aa={} if union_mode else metrics.aa_accuracy(store),
        bounds=bounds,
        notes=list(store.manifest.notes),
        audit=audit,
        given_up=given_up,
    )
