"""The paper's questions, answered by differences between two results, paired image by image."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.paired import shared_attacks, tried_images
from robustdeq.evaluation.analysis.statistics import bootstrap_difference, bootstrap_minimum_difference
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, finished, minimum_attacks, once, unfinished
from robustdeq.report.results.match import images_key, training_key, weights
from robustdeq.report.tables.audits import audited
from robustdeq.report.tables.numbers import strongest_autoattack
from robustdeq.report.tables.table import NONE, Cell, Table, points

RANDOM, ENTROPY = "Does Sec. 3.3 help?", "Does Sec. 3.2 help?"
BOTH, RESNET = "Do they compose?", "Does a DEQ beat the ResNet of equal size?"
QUESTIONS = (RANDOM, ENTROPY, BOTH, RESNET)
UNFINISHED = "unfinished"
EQUAL_SIZE = {"mdeq-large": "resnet18", "mdeq-tiny": "resnet-tiny", "mdeq-thin": "resnet-thin"}

Pair = tuple[str, Result, Result]
"""A question, the result without what it asks about, and the result with it."""


def differences(results: list[Result]) -> Table:
    """Every pair that answers a question, on clean images and under attack."""
    verdicts = {r.label: audit.verdict for r, audit in audited(results)}
    pairs = [(found, a, b) for a, b in permutations(results, 2) if (found := question(a, b)) is not None]
    # what audits of defences compare with, also where the base has a store of its own
    for r in (r for r in results if r.label in verdicts and r.undefended is not None):
        for other in results:
            base = Result(r.label, r.store, str(r.undefended))
            if base not in results and other.entropy is not None and (found := question(base, other)) is not None:
                pairs.append((found, base, other))
    rows = []
    for found, a, b in sorted(_best(pairs, verdicts), key=lambda pair: QUESTIONS.index(pair[0])):
        data = a.manifest.data
        words = (found, a.training, _called(a), _called(b), data.name, str(data.images), a.eps)
        verdict = Cell(verdicts[b.label]) if b.store is a.store and b.label in verdicts and not b.oblivious else NONE
        numbers = survival(a, b, [], [], "clean"), minimum(a, b), autoattack(a, b), union(a, b)
        rows.append([*map(Cell, words), *numbers, verdict])
    head = ("question", "training", "without", "with", "data", "images", "eps", "clean", "PGD", "AA", "union", "audit")
    notes: tuple[str, ...] = (
        "Accuracy with minus accuracy without, in points, on the same images, and its 95% interval by paired bootstrap "
        "over images, at least as wide as Wilson's intervals of the images gained and lost make it. It says how "
        "sure the difference is for these weights, and nothing about seeds: another training of the "
        "same recipe may differ by more.",
        "The number of images stands beside a difference that is over the first ones only, such as those that both "
        "ran AutoAttack on. clean, PGD and AA as in Table 1, each under its own attacks. union: over the attacks that "
        "both have by name; "
        "without such (a ResNet has none of the intermediate states) each over its own, which favours the one with "
        "fewer, and none is shown if one of them alone has AA. oblivious: shown only images made against the "
        "undefended model, which favours the defence. "
        "(base): shown only images made against its defence, which favours the base where attacks knew of that.",
        "Of several stores of the same two predictors that of an audit of the defence is shown, then the pair with the "
        "most images, then the one with AA, then the one with the most attacks. audit: the verdict on the defence "
        "beside its static base.",
        "Sec. 3.2 and 3.3 compose if each helps where the other is in place already (3.2 on a model with random "
        "states, 3.3 between two defended models) and both together beat neither.",
    )
    if any(unfinished(r) for _, *pair in pairs for r in pair):
        notes += (f"{UNFINISHED}: not all attacks of that store are done; AA and union are over those that are.",)
    return Table("differences", "Differences. The paper's questions, paired image by image", head, rows, notes)


def _best(pairs: list[Pair], verdicts: Collection[str]) -> list[Pair]:
    """Keep one of several pairs of the same two predictors: the one with most to compare."""
    best: dict[Any, Pair] = {}
    for number, pair in enumerate(pairs):
        found, a, b = pair
        same = [
            (weights(r), r.described, str(r.entropy), r.record.deployed_state, r.manifest.data.name, r.eps)
            for r in (a, b)
        ]
        key = number if None in (weights(a), weights(b)) else (found, a.training, *same)
        if key not in best or _content(pair, verdicts) > _content(best[key], verdicts):
            best[key] = pair
    return list(best.values())


def _content(pair: Pair, verdicts: Collection[str]) -> tuple[int, int, bool, int]:
    """How much there is to compare: an audit of the defence, images, AutoAttack, attacks."""
    _, *both = pair
    seen = both[1].entropy is not None and all(r.label in verdicts and not r.oblivious for r in both)
    audit = seen + (seen and both[0].store is both[1].store)  # at best of the two beside each other
    aa = all(strongest_autoattack(r) is not None for r in both)
    return audit, both[0].manifest.data.images, aa, min(len(finished(r)) for r in both)


def question(a: Result, b: Result) -> str | None:
    """The question that b minus a answers: the two differ only in what it asks about. None if there is no such one."""
    model_a, model_b = a.manifest.model, b.manifest.model
    clean_done = all(r.store.complete(None) for r in (a, b))
    if images_key(a) != images_key(b) or not b.manifest.dynamic or not clean_done:
        return None
    if not a.manifest.dynamic:
        equal_size = EQUAL_SIZE.get(model_b.kind) == model_a.kind
        equal_seed = model_a.metadata.get("seed") == model_b.metadata.get("seed")
        return RESNET if a.training == b.training != "unknown" and equal_size and equal_seed else None
    if a.record.deployed_state != b.record.deployed_state:
        return None
    added = a.entropy is None and b.entropy is not None
    # if b was attacked obliviously, a must be the very model that was attacked
    same_weights = not b.oblivious and weights(a) is not None and weights(a) == weights(b)
    if added and (a.store is b.store or same_weights):
        return ENTROPY
    if a.training == "unknown" or training_key(a) != training_key(b) or a.random or not b.random:
        return None
    if added:
        return BOTH
    return RANDOM if a.entropy == b.entropy and a.oblivious == b.oblivious else None


def minimum(a: Result, b: Result) -> Cell:
    """Difference of the paper's minima over attacks."""
    names = [minimum_attacks(r) for r in (a, b)]
    both = list(zip((a, b), names, strict=True))
    if not all(complete(r, n) and tried_images(r.store, n) == r.manifest.data.images for r, n in both):
        return NONE
    left, right = (np.stack([_outcomes(r)[name] for name in n], axis=1) for r, n in both)
    where = f"{_from(a, b)}; minima over {len(names[1])} and {len(names[0])} attacks"
    return points(bootstrap_minimum_difference(left, right), where, of=a.manifest.data.images)


def autoattack(a: Result, b: Result) -> Cell:
    """Difference of the accuracies under each one's own strongest AutoAttack."""
    one, two = strongest_autoattack(a), strongest_autoattack(b)
    if one is None or two is None:
        return NONE
    return survival(a, b, [one], [two], f"clean and {two}, clean and {one}")


def union(a: Result, b: Result) -> Cell:
    """Difference of the unions over the attacks that both have, else over each one's own."""
    ours, theirs = finished(a), finished(b)
    if not ours or not theirs:
        return NONE
    common = shared_attacks(a.store, b.store, [name for name in ours if name in theirs])
    if common:
        ours = theirs = common
    else:
        with_aa = [
            any(r.manifest.attacks[name].spec.attack == "autoattack" for name in names)
            for r, names in ((a, ours), (b, theirs))
        ]
        if with_aa[0] != with_aa[1]:
            return NONE  # AutoAttack on one side only would decide the comparison
    tried = min(tried_images(a.store, ours), tried_images(b.store, theirs))
    what = f"the first {tried} images; never broken by {len(theirs)} and {len(ours)} attacks"
    return survival(a, b, ours, theirs, what)


def survival(a: Result, b: Result, ours: Sequence[str], theirs: Sequence[str], what: str) -> Cell:
    """Difference of the shares of images that are correct before and under all of these attacks on a and on b.

    Counted over the first images, on which all of these attacks were run.
    """
    both = ((a, ours), (b, theirs))
    tried = min(tried_images(r.store, names) for r, names in both)
    left, right = (np.all([_outcomes(r)[name] for name in (None, *names)], axis=0)[:tried] for r, names in both)
    return points(bootstrap_difference(left, right), f"{_from(a, b)}; {what}", of=a.manifest.data.images)


@once
def _outcomes(r: Result) -> dict[str | None, NDArray[np.bool_]]:
    """Whether each image is classified correctly, by finished attack; None is before any attack."""
    attacks = [name for name in r.store.attacks if r.store.complete(name)]
    correct = metrics.outcomes(r.store, attacks, predictor=r.predictor)[0]
    return dict(zip((None, *attacks), correct.T, strict=True))


def _called(r: Result) -> str:
    kind = r.described if r.manifest.dynamic else r.manifest.model.kind
    return f"{r.name}: {kind}{f', {UNFINISHED}' if unfinished(r) else ''}"


def _from(a: Result, b: Result) -> str:
    return f"store {b.label}: predictor {b.predictor}, minus store {a.label}: predictor {a.predictor}; deployed states"
