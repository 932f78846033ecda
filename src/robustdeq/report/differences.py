"""The paper's four questions as differences between two results, paired image by image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis.paired import shared_attacks, tried_images
from robustdeq.evaluation.analysis.statistics import bootstrap_difference, bootstrap_minimum_difference
from robustdeq.report.numbers import finished, lowest_aa
from robustdeq.report.sources import Result
from robustdeq.report.table import NONE, Cell, Table, points

RANDOM, ENTROPY = "Does Sec. 3.3 help?", "Does Sec. 3.2 help?"
BOTH, RESNET = "Do they compose?", "Does a DEQ beat the ResNet of equal size?"
QUESTIONS = (RANDOM, ENTROPY, BOTH, RESNET)
UNFINISHED = "unfinished"
EQUAL_SIZE = {"mdeq-large": "resnet18", "mdeq-tiny": "resnet-tiny"}

Outcomes = NDArray[np.bool_]
Pair = tuple[str, Result, Result]
"""The question, and the results without and with."""


def differences(results: list[Result]) -> Table:
    """Every pair that answers a question, on clean images and under attack."""
    pairs = _best([(found, a, b) for a, b in permutations(results, 2) if (found := question(a, b)) is not None])
    rows = []
    for found, a, b in sorted(pairs, key=lambda pair: QUESTIONS.index(pair[0])):
        words = (found, a.training, _called(a), _called(b), a.data.name, str(a.data.images), a.eps)
        rows.append([*map(Cell, words), clean(a, b), minimum(a, b), autoattack(a, b), union(a, b)])
    head = ("question", "training", "without", "with", "data", "images", "eps", "clean", "PGD", "AA", "union")
    notes: tuple[str, ...] = (
        "Accuracy with minus accuracy without, in points, on the same images, and its 95% interval by paired bootstrap "
        "over images, at least as wide as Wilson's intervals of the images gained and lost make it. It says how "
        "sure the difference is for these weights, and nothing about seeds: another training of the "
        "same recipe may differ by more.",
        "clean, PGD and AA as in Table 1, each under its own attacks. union: over the attacks that both have by name; "
        "without such (a ResNet has none of the intermediate states) each over its own, which favours the one with "
        "fewer, and none is shown if one of them alone has AA. oblivious: shown only images made against the "
        "undefended model, which favours the defence. "
        "(base): shown only images made against its defence, which favours the base where attacks knew of that.",
        "Of several stores of the same two predictors the pair with the most images is shown, then the one with AA, "
        "then the one with the most attacks.",
        "Sec. 3.2 and 3.3 compose if each helps where the other is in place already (3.2 on a model with random "
        "states, 3.3 between two defended models) and both together beat neither.",
    )
    if any(r.unfinished for _, *pair in pairs for r in pair):
        notes += (f"{UNFINISHED}: not all attacks of that store are done; AA and union are over those that are.",)
    return Table("differences", "Differences. The paper's questions, paired image by image", head, rows, notes)


def _best(pairs: list[Pair]) -> list[Pair]:
    """Of the pairs of the same two predictors, in several stores, the one that says most."""
    best: dict[Any, Pair] = {}
    for number, pair in enumerate(pairs):
        found, a, b = pair
        same = [(r.weights, r.described, str(r.settings), r.state, r.data.name, r.eps) for r in (a, b)]
        key = number if None in (a.weights, b.weights) else (found, a.training, *same)
        if key not in best or _says(pair) > _says(best[key]):
            best[key] = pair
    return list(best.values())


def _says(pair: Pair) -> tuple[int, bool, int]:
    """How much there is to compare: images, AutoAttack, attacks."""
    _, a, b = pair
    names = [finished(r) for r in (a, b)]
    return a.data.images, None not in (lowest_aa(a), lowest_aa(b)), min(map(len, names))


def question(a: Result, b: Result) -> str | None:
    """The one that b minus a answers, if any: they differ in nothing but what it asks for."""
    if a.images != b.images or not b.dynamic or not all(r.store.complete(None) for r in (a, b)):
        return None
    if not a.dynamic:
        seeds = (a.metadata.get("seed"), b.metadata.get("seed"))
        equal = a.training == b.training != "unknown" and EQUAL_SIZE.get(b.model) == a.model and seeds[0] == seeds[1]
        return RESNET if equal else None
    if a.state != b.state:
        return None
    added = a.entropy is None and b.entropy is not None
    if added and _same_model(a, b):
        return ENTROPY
    if a.training == "unknown" or a.trained != b.trained or a.random or not b.random:
        return None
    if added:
        return BOTH
    return RANDOM if a.settings == b.settings and a.oblivious == b.oblivious else None


def _same_model(a: Result, b: Result) -> bool:
    """The undefended model of b; where b was attacked obliviously, the very one that the attacks were made against."""
    return a.store is b.store or (not b.oblivious and a.weights is not None and a.weights == b.weights)


def clean(a: Result, b: Result) -> Cell:
    """Without any attack."""
    left, right = (_outcomes(r, [])[:, 0] for r in (a, b))
    return points(bootstrap_difference(left, right), f"{_from(a, b)}; clean")


def minimum(a: Result, b: Result) -> Cell:
    """Of the paper's minima over attacks."""
    names = [r.minimum_attacks for r in (a, b)]
    both = list(zip((a, b), names, strict=True))
    if not all(r.complete(n) and tried_images(r.store, n) == r.data.images for r, n in both):
        return NONE
    left, right = (_outcomes(r, n)[:, 1:] for r, n in both)
    where = f"{_from(a, b)}; minima over {len(names[1])} and {len(names[0])} attacks"
    return points(bootstrap_minimum_difference(left, right), where)


def autoattack(a: Result, b: Result) -> Cell:
    """Under AutoAttack, each its own."""
    one, two = lowest_aa(a), lowest_aa(b)
    if one is None or two is None:
        return NONE
    tried = min(tried_images(r.store, [name]) for r, name in ((a, one), (b, two)))
    left, right = (_survived(r, [name])[:tried] for r, name in ((a, one), (b, two)))
    return points(bootstrap_difference(left, right), f"{_from(a, b)}; clean and {two}, clean and {one}")


def union(a: Result, b: Result) -> Cell:
    """Of the worst cases over the attacks that both have, else over each one's own; where all of them were tried."""
    names = [finished(r) for r in (a, b)]
    if not all(names):
        return NONE
    common = shared_attacks(a.store, b.store, [name for name in names[0] if name in names[1]])
    if common:
        names = [common, common]
    elif _with_aa(a, names[0]) != _with_aa(b, names[1]):
        return NONE  # AutoAttack on one side alone would decide
    pairs = list(zip((a, b), names, strict=True))
    tried = min(tried_images(r.store, n) for r, n in pairs)
    left, right = (_survived(r, n)[:tried] for r, n in pairs)
    where = f"{_from(a, b)}; the first {tried} images; never broken by {len(names[1])} and {len(names[0])} attacks"
    return points(bootstrap_difference(left, right), where)


def _with_aa(r: Result, names: Sequence[str]) -> bool:
    return any(r.store.manifest.attacks[name].spec.attack == "autoattack" for name in names)


def _outcomes(r: Result, names: Sequence[str]) -> Outcomes:
    """Whether each image is correct: clean, then under each attack."""
    return metrics.outcomes(r.store, names, predictor=r.predictor)[2]


def _survived(r: Result, names: Sequence[str]) -> Outcomes:
    """Whether each image is correct clean and under all attacks."""
    return np.asarray(_outcomes(r, names).all(axis=1))


def _called(r: Result) -> str:
    unfinished = f", {UNFINISHED}" if r.unfinished else ""
    return f"{r.name}: {r.described if r.dynamic else r.model}{unfinished}"


def _from(a: Result, b: Result) -> str:
    return f"store {b.label}: predictor {b.predictor}, minus store {a.label}: predictor {a.predictor}; deployed states"
