"""The pairs of models that Table 3 has no number for."""

from __future__ import annotations

from collections.abc import Iterator

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.missing.commands import evaluate_again, folder, resume
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.complete import grid
from robustdeq.report.results.match import images_key, predictor_key


def missing_transfer(sources: Sources) -> Iterator[tuple[str, str]]:
    """For each row of Table 3 the models whose images it was not shown yet, and the command that shows them.

    Once images of one model were shown to another, the table is about such models only; before, about all.
    """
    whole = [r for r in sources.deployed if r.manifest.dynamic and not r.manifest.union]
    shown = [(t, s) for t in whole for s in whole if t is not s and metrics.shown_from(s.store, t.store)]
    done = [(predictor_key(t), predictor_key(s)) for t, s in shown]
    targets = [r for r in whole if any(r is t for t, _ in shown)]
    table = targets + [r for r in whole if any(r is s for _, s in shown) and r not in targets]
    rows = []
    for target in table or whole:
        own = predictor_key(target)
        if own in rows:  # another store of the same predictor is the row
            continue
        rows.append(own)
        others: list[Result] = []
        for r in sorted(table or whole, key=_keeps_grid, reverse=True):
            key = predictor_key(r)
            new = key not in [own, *map(predictor_key, others)] and (own, key) not in done
            if new and images_key(r) == images_key(target):
                others.append(r)
        if others:
            gone = [r for r in others if not _keeps_grid(r)]
            made = [evaluate_again(r, "transfer", folder(r, "-transfer")) for r in gone]
            folders = [folder(r, "-transfer" if r in gone else "") for r in others]
            what = f"transfer to {target.label} from {', '.join(r.label for r in others)}"
            if gone:
                what += f"; no images of {', '.join(r.label for r in gone)} are kept"
            yield what, " && ".join([*made, resume(target, folders)[0]])


def _keeps_grid(r: Result) -> bool:
    return any(r.store.has_images(name) for name in grid(r))
