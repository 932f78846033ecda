"""What no store holds although the paper reports it: methods, attacks, settings, figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.missing.commands import ENTROPY, evaluate_again, evaluate_recipe, folder, resume, train
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.complete import grid, grid_size, has_part_of_grid, oblivious_grid, unfinished
from robustdeq.report.results.describe import OBJECTIVES
from robustdeq.report.results.match import images_key, paper_row, predictor_key, t_f_and_r
from robustdeq.report.results.trainings import jacobian_groups

_RECIPES = {"PGD-AT": "pgdat", "TRADES": "trades"}
_JACOBIANS = (0.4, 2.0)
"""The weights of Fig. 6."""
_MODELS = {"cifar10-tiny": "mdeq-thin", "cifar10-large": "mdeq-large", "digits-nano": "mdeq-nano"}
"""What the recipes of a family train."""
_RESNETS = {"cifar10-tiny": "resnet", "cifar10-large": "resnet18"}


@dataclass(frozen=True)
class Missing:
    """An experiment that is not there."""

    item: str
    """The tables and figures that need it."""
    what: str
    command: str


def missing_experiments(sources: Sources) -> list[Missing]:
    """Everything that is missing, in the order of the paper."""
    found = [*_methods(sources)]
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in sources.deployed:
        found += _unfinished(r)
        groups[repr((predictor_key(r), r.manifest.data.name, r.manifest.threat))].append(r)
    for stores in groups.values():  # of a predictor under a threat on a data set, however many images
        found += _attacks(stores)
    found += _transfer(sources)
    found += _settings(sources)
    return [*found, *_trainings(sources), *_speeds(sources)]


def _trainings(sources: Sources) -> Iterator[Missing]:
    """Fig. 4 without trainings, and Fig. 6 without two Jacobian weights of one objective."""
    if not any(run.validation() for run in sources.runs):
        command = "robustdeq report STORE... RUN... --out DIR"
        yield Missing("Fig. 4", "PGD-10 accuracy during training: no folder of a training was given", command)
    trained = [run.settings for run in sources.runs if run.settings is not None and run.validation()]
    compared = {training for _, training, _ in jacobian_groups(sources.runs)}
    for training, objective in _RECIPES.items():
        if training in compared:
            continue
        family = _family(sources)
        recipe, model = f"{family}-{objective}", _MODELS[family]
        here = {s.jacobian for s in trained if (s.training, s.states, s.model) == (training, "final", model)}
        commands = [
            train(recipe, f"runs/{recipe}-jacobian{weight}", "--jacobian.weight", str(weight))
            for weight in _JACOBIANS
            if weight not in here
        ]
        known = ", ".join(f"{weight:g}" for weight in sorted(here)) or "none"
        what = f"{training} with two weights of the Jacobian penalty; of {model} there is {known}"
        yield Missing("Fig. 6", what, " && ".join(commands))


def _speeds(sources: Sources) -> Iterator[Missing]:
    """What Tables 9 and 10 lack."""
    trainings = [t for b in sources.benchmarks for t in b.trainings]
    trained = {(OBJECTIVES[t.objective], paper.RANDOM if t.random else paper.BASE) for t in trainings}
    timed = {(p.every, p.steps) for b in sources.benchmarks for p in b.predictions}
    note = "it depends on the machine; give FILE to the report too"
    if left := [" ".join(row) for row in paper.TABLE_9 if row not in trained]:
        yield Missing("Table 9", f"training speed of {', '.join(left)}; {note}", "robustdeq bench train --json FILE")
    if left := [f"({every}, {steps})" for every, steps in paper.TABLE_10 if (every, steps) not in timed]:
        what = f"inference speed of the defence at {len(left)} of the {len(paper.TABLE_10)} pairs (T_f, R); {note}"
        yield Missing("Table 10", what, "robustdeq bench defence --json FILE")


def _methods(sources: Sources) -> Iterator[Missing]:
    """The rows of Table 1 that no store was made for."""
    attacked = {paper_row(r): r for r in sources.results if not r.oblivious}
    shown = {paper_row(r) for r in sources.results}
    family = _family(sources)
    for training, method in (row for row in paper.TABLE_1 if row not in attacked):
        recipe = f"{family}-{_RECIPES[training]}"
        if method == "no dynamics":
            if family in _RESNETS:  # there is a recipe for a ResNet of equal size
                recipe = f"{family}-{_RESNETS[family]}-{_RECIPES[training]}"
                command = evaluate_recipe(recipe, f"runs/{recipe}-results")
                yield Missing("Table 1", f"{training}, a ResNet of equal size", command)
            continue
        random, entropy = method in (paper.RANDOM, paper.BOTH), method in (paper.ENTROPY, paper.BOTH)
        recipe += "-random" if random else ""
        own = attacked.get((training, paper.RANDOM if random else paper.BASE))
        defence = ENTROPY if entropy else ()
        store = f"runs/{recipe}{'-entropy' if entropy else ''}-results"
        what = f"{training} {method}"
        if (training, method) in shown:
            what += ": attacks on the defended model itself, and its AutoAttack; so far it is attacked obliviously"
        again = evaluate_again(own, "paper", store, defence=defence) if own else None
        yield Missing("Table 1", what, again or evaluate_recipe(recipe, store, defence))


def _family(sources: Sources) -> str:
    """The recipes of the size and data of the results, without any of the trainings."""
    trained = {run.settings.model for run in sources.runs if run.settings is not None}
    models = {r.manifest.model.kind for r in sources.results} or trained
    size = "tiny" if models & {"mdeq-thin", "mdeq-tiny", "resnet-thin", "resnet-tiny"} else "large"
    digits = any(r.manifest.data.name == "digits" for r in sources.results) or (
        not sources.results and "mdeq-nano" in models
    )
    return "digits-nano" if digits else f"cifar10-{size}"


def _unfinished(r: Result) -> list[Missing]:
    """What a store has not finished, with the commands that resume it."""
    planned, clean = r.store.attacks, r.store.complete(None)
    left = [name for name in planned if not r.store.complete(name)]
    if clean and not left:
        return []
    what = f"{r.label}: {'' if clean else 'the clean accuracy and '}{len(left)} of {len(planned)} attacks"
    if clean and unfinished(r):
        what += "; the union without them is an upper bound"
    return [Missing("all", what, "; ".join(resume(r)))]


class _Gap(NamedTuple):
    """Something that a store does not hold."""

    item: str
    what: str
    suite: str
    """The suite that adds it."""
    among: Literal["store", "images", "predictor"]
    """Which other stores may hold it instead: none, those of the predictor with the same images, or all of these."""
    beside: str = ""
    """The end of another folder to write to, because a store does not run again what it has."""


def _attacks(stores: list[Result]) -> list[Missing]:
    """What neither the largest store of a predictor holds nor another that could stand in for it."""
    single = [r for r in stores if not r.manifest.union]
    largest = max(single or stores, key=lambda r: (not has_part_of_grid(r), r.manifest.data.images))
    if not single:
        what = f"{largest.label}: accuracies under single attacks, which a store made with --union does not hold"
        return [Missing("Tables 1, 2, 8", what, evaluate_again(largest, "paper", "OTHER"))]
    same_images = [r for r in single if images_key(r) == images_key(largest)]
    instead = {"store": [], "images": same_images, "predictor": single}
    absent = [gap for gap in _gaps(largest) if all(gap.item in {g.item for g in _gaps(r)} for r in instead[gap.among])]
    if any(gap.item == "Table 2" for gap in absent):  # the same suite draws them
        absent = [gap for gap in absent if gap.item != "Figs. 2, 3c"]
    # a store only takes suites that score the same predictors
    alone = set(largest.manifest.predictors) <= {"deployed", "base"}
    found = []
    for gap in absent:
        into = folder(largest, gap.beside or ("" if alone else f"-{gap.suite}"))
        keep = ["--keep-images"] if gap.item == "images" else []
        found.append(Missing(gap.item, f"{largest.label}: {gap.what}", evaluate_again(largest, gap.suite, into, *keep)))
    return found


def _gaps(r: Result) -> list[_Gap]:
    """Everything that a store itself does not hold."""
    specs, dynamic = [record.spec for record in r.manifest.attacks.values()], r.manifest.dynamic
    groups = {spec.group for spec in specs}
    of_grid = grid_size(r) - len(oblivious_grid(r)) if dynamic else 0
    part, diagnoses = f"{of_grid} of the grid's {grid_size(r)} attacks", "deviations and residuals under attack"
    has_aa, diagnosed = any(s.is_standard_autoattack for s in specs), any(s.diagnostics for s in specs)
    pictures, deep = any(map(r.store.has_images, r.store.attacks)), dynamic and r.states >= 3
    # of the models that the paper has, its Table 4 is about one
    subject = deep and (paper_row(r) == ("TRADES", paper.BOTH) or paper_row(r) not in paper.TABLE_1)
    of_table_4 = _of_table_4(r)
    lacking = (
        (of_grid > 0, _Gap("Tables 1, 6, 7, 8, Figs. 3a, 5", part, "grid", "images")),
        ("ready" not in groups, _Gap("Table 2", "PGD-10 at the final state", "quick", "store")),
        (not has_aa, _Gap("Table 1", "AutoAttack", "autoattack", "images")),
        (subject and bool(of_table_4), _Gap("Table 4", ", ".join(of_table_4), "table4", "predictor")),
        (dynamic and not diagnosed, _Gap("Figs. 2, 3c", diagnoses, "quick", "images", "-quick")),
        (not pictures, _Gap("images", "adversarial images to look at", "quick", "predictor", "-images")),
    )
    return [gap for lacks, gap in lacking if lacks]


def _of_table_4(r: Result) -> list[str]:
    """What a store lacks of Table 4."""
    pairs = [(i, k) for i, k in paper.TABLE_4["pgd"] if i <= r.states] if r.manifest.dynamic else []
    lacking = []
    for search, name in (("pgd", "PGD"), ("apgd", "APGD-CE")):
        left = sum(f"{search}-i{i}-K{k}-l0.5" not in r.manifest.attacks for i, k in pairs)
        lacking += [f"{name} at {left} of the {len(pairs)} pairs"] if left else []
    square = any(record.spec.attack == "square" for record in r.manifest.attacks.values())
    return lacking if square else [*lacking, "Square"]


def _transfer(sources: Sources) -> Iterator[Missing]:
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
            yield Missing("Table 3", what, " && ".join([*made, resume(target, folders)[0]]))


def _keeps_grid(r: Result) -> bool:
    return any(r.store.has_images(name) for name in grid(r))


def _settings(sources: Sources) -> list[Missing]:
    """The settings of Table 5 that no predictor of a store has."""
    dynamic = [r for r in sources.deployed if r.manifest.dynamic]
    have = {t_f_and_r(Result(r.label, r.store, name)) for r in dynamic for name in r.manifest.predictors}
    states = max((r.states for r in dynamic), default=8)
    lacking = [(every, steps) for every, steps in paper.TABLE_5 if every <= states and (every, steps) not in have]
    if not lacking:
        return []
    what = f"{len(lacking)} of the 16 settings (T_f, R) of the entropy reduction"
    command = "robustdeq evaluate CKPT --suite settings --out DIR"
    if dynamic:
        wanted = (("TRADES", paper.RANDOM), ("TRADES", paper.BOTH))
        own = min(dynamic, key=lambda r: paper_row(r) not in wanted)
        command = evaluate_again(own, "settings", folder(own, "-settings"), defence=())
    return [Missing("Table 5", what, command)]
