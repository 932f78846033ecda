"""The pairs of models that Table 3 has no number for."""

from __future__ import annotations

from collections.abc import Iterator

from robustdeq.evaluation.analysis import metrics
from robustdeq.report.missing.commands import evaluate_again, folder, resume
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.complete import grid
from robustdeq.report.results.match import images_key, predictor_key


def missing_transfer(sources: Sources) -> Iterator[tuple[str, str]]:
    """What is missing in words, and the command that shows the kept images of one model to another."""
    whole = [r for r in sources.deployed if r.manifest.dynamic and not r.manifest.union]
    if any(record.spec.attack == "stored" for r in whole for record in r.manifest.attacks.values()):
        yield from _missing_pairs(whole)
        return
    first = next((r for r in whole if sum(images_key(r) == images_key(other) for other in whole) > 1), None)
    if first is None:
        return
    others = [r for r in whole if images_key(r) == images_key(first) and r is not first]
    keeping = [r for r in others if _keeps_grid(r)]
    what = f"transfer between the models, here to {first.label}, and so for each"
    if keeping:
        yield what, resume(first, [folder(r) for r in keeping])[0]
        return
    source, target = (folder(r, "-transfer") for r in (others[0], first))
    made = evaluate_again(others[0], "transfer", source)
    yield f"{what}; no images are kept yet", f"{made} && {evaluate_again(first, 'transfer', target, sources=[source])}"


def _missing_pairs(whole: list[Result]) -> Iterator[tuple[str, str]]:
    """For each row of Table 3 the other models on the same images that it has no number for."""
    shown = [(t, s) for t in whole for s in whole if t is not s and metrics.shown_from(s.store, t.store)]
    done = [(predictor_key(t), predictor_key(s)) for t, s in shown]
    targets = [r for r in whole if any(r is t for t, _ in shown)]
    table = targets + [r for r in whole if any(r is s for _, s in shown) and r not in targets]
    rows = []
    for target in table:
        own = predictor_key(target)
        if own in rows:  # another store of the same predictor is the row
            continue
        rows.append(own)
        sources: list[Result] = []
        for r in sorted(table, key=_keeps_grid, reverse=True):
            known = [own, *map(predictor_key, sources)]
            key = predictor_key(r)
            if images_key(r) == images_key(target) and key not in known and (own, key) not in done:
                sources.append(r)
        if sources:
            gone = [r for r in sources if not _keeps_grid(r)]
            made = [evaluate_again(r, "transfer", folder(r, "-transfer")) for r in gone]
            folders = [folder(r, "-transfer" if r in gone else "") for r in sources]
            what = f"transfer to {target.label} from {', '.join(r.label for r in sources)}"
            if gone:
                what += f"; no images of {', '.join(r.label for r in gone)} are kept"
            yield what, " && ".join([*made, resume(target, folders)[0]])


def _keeps_grid(r: Result) -> bool:
    return any(r.store.has_images(name) for name in grid(r))
