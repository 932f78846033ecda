"""Experiments of the paper that the results do not hold, with the commands that would produce them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.commands import again, folder, from_recipe, go_on
from robustdeq.report.sources import Result, Sources, t_f_and_r

_RECIPES = {("PGD-AT", False): "pgdat", ("PGD-AT", True): "pgdat-random"} | {
    ("TRADES", False): "trades",
    ("TRADES", True): "trades-random",
}
_RESNETS = {"cifar10-tiny": "resnet", "cifar10-large": "resnet18"}


@dataclass(frozen=True)
class Missing:
    """What is not there."""

    item: str
    what: str
    command: str


def missing_experiments(sources: Sources) -> list[Missing]:
    """In the order of the paper."""
    found = [*_methods(sources)]
    deployed = [r for r in sources.results if r.predictor == "deployed"]
    for r in deployed:
        found += _unfinished(r)
    for stores in _by_predictor(deployed):
        found += _attacks(stores)
    found += _transfer(sources)
    found += _settings(sources)
    if not sources.runs:
        found.append(
            Missing("Figs. 4, 6", "validation accuracy during training", "robustdeq report STORE... RUN... --out DIR")
        )
    found.append(
        Missing("Table 9", "training speed, which depends on the machine", "robustdeq bench train --json FILE")
    )
    found.append(Missing("Table 10", "inference speed of the defence, likewise", "robustdeq bench defence --json FILE"))
    return found


def _methods(sources: Sources) -> list[Missing]:
    attacked = {(r.training, r.method): r for r in sources.results if not r.oblivious}
    shown = {(r.training, r.method) for r in sources.results}
    found = []
    for training, method in paper.TABLE_1:
        if (training, method) in attacked:
            continue
        if method == "no dynamics":
            found += _resnet(training, _prefix(sources))
            continue
        random, entropy = method in (paper.RANDOM, paper.BOTH), method in (paper.ENTROPY, paper.BOTH)
        recipe = f"{_prefix(sources)}-{_RECIPES[training, random]}"
        own = attacked.get((training, paper.RANDOM if random else paper.BASE))
        defence = {"defence": "entropy"} if entropy else {}
        store = f"runs/{recipe}{'-entropy' if entropy else ''}-results"
        command = again(own, "paper", store, defence=defence) if own else from_recipe(recipe, store, defence)
        what = f"{training} {method}"
        if (training, method) in shown:
            what += ": attacks on the defended model itself, and its AutoAttack; so far it is attacked obliviously"
        found.append(Missing("Table 1", what, command))
    return found


def _resnet(training: str, prefix: str) -> list[Missing]:
    """Of equal size, where there is a recipe for one."""
    if prefix not in _RESNETS:
        return []
    recipe = f"{prefix}-{_RESNETS[prefix]}-{_RECIPES[training, False]}"
    command = from_recipe(recipe, f"runs/{recipe}-results", {})
    return [Missing("Table 1", f"{training}, a ResNet of equal size", command)]


def _prefix(sources: Sources) -> str:
    """The family of recipes that fits the results."""
    names = {(r.data.name, r.model) for r in sources.results}
    if any(data == "digits" for data, _ in names):
        return "digits-nano"
    return "cifar10-tiny" if any(model == "mdeq-tiny" for _, model in names) else "cifar10-large"


def _by_predictor(results: list[Result]) -> list[list[Result]]:
    """The stores of each predictor under a threat on a data set, however many images."""
    groups: dict[str, list[Result]] = {}
    for r in results:
        groups.setdefault(repr((r.subject, r.data.name, r.store.manifest.threat)), []).append(r)
    return [*groups.values()]


def _unfinished(r: Result) -> list[Missing]:
    """What was begun in a store, with the command that goes on."""
    planned, clean = r.store.attacks, r.store.complete(None)
    left = [name for name in planned if not r.store.complete(name)]
    if clean and not left:
        return []
    what = f"{r.label}: {'' if clean else 'the clean accuracy and '}{len(left)} of {len(planned)} attacks"
    if clean and r.unfinished:
        what += "; the union without them is an upper bound"
    return [Missing("all", what, "; ".join(go_on(r)))]


class _Gap(NamedTuple):
    """Something that a store does not hold."""

    item: str
    what: str
    suite: str
    """That adds it."""
    among: Literal["store", "images", "predictor"]
    """Who may hold it instead: none, other stores of the predictor with the same images, or any of the predictor."""
    beside: str = ""
    """The end of the other folder it goes into, because what is done in the store is not done again."""


def _attacks(stores: list[Result]) -> list[Missing]:
    """What the largest store of a predictor does not hold, nor another that could stand for it, and how to add it."""
    single = [r for r in stores if not r.store.manifest.union]
    largest = max(single or stores, key=lambda r: (not r.aside, r.data.images))
    if not single:
        what = f"{largest.label}: accuracies under single attacks, which a store made with --union does not hold"
        return [Missing("Tables 1, 2, 8", what, again(largest, "paper", "OTHER"))]
    instead = {"store": [], "images": [r for r in single if r.images == largest.images], "predictor": single}
    absent = [gap for gap in _gaps(largest) if all(gap.item in {g.item for g in _gaps(r)} for r in instead[gap.among])]
    if any(gap.item == "Table 2" for gap in absent):  # the same suite draws them
        absent = [gap for gap in absent if gap.item != "Figs. 2, 3c"]
    # only a suite that scores the same predictors may go into a store's folder
    alone = set(largest.store.manifest.predictors) <= {"deployed", "base"}
    found = []
    for gap in absent:
        into = folder(largest, gap.beside or ("" if alone else f"-{gap.suite}"))
        command = again(largest, gap.suite, into, keep_images=gap.item == "images")
        found.append(Missing(gap.item, f"{largest.label}: {gap.what}", command))
    return found


def _gaps(r: Result) -> list[_Gap]:
    """All that a store itself does not hold."""
    planned = r.store.manifest.attacks.values()
    groups = {config.spec.group for config in planned}
    of_grid = r.whole_grid - len(r.oblivious_grid) if r.dynamic else 0
    grid, diagnoses = f"{of_grid} of the grid's {r.whole_grid} attacks", "deviations and residuals under attack"
    has_aa = any(config.spec.is_standard_autoattack for config in planned)
    diagnosed = any(config.spec.diagnostics for config in planned)
    pictures = any(map(r.store.has_images, r.store.attacks))
    lacking = (
        (of_grid > 0, _Gap("Tables 1, 6, 7, 8, Figs. 3a, 5", grid, "grid", "images")),
        ("ready" not in groups, _Gap("Table 2", "PGD-10 at the final state", "quick", "store")),
        (not has_aa, _Gap("Table 1", "AutoAttack", "autoattack", "images")),
        (
            r.dynamic and r.states >= 3 and "table4" not in groups,
            _Gap("Table 4", "APGD-CE and Square", "table4", "predictor"),
        ),
        (r.dynamic and not diagnosed, _Gap("Figs. 2, 3c", diagnoses, "quick", "images", "-quick")),
        (not pictures, _Gap("images", "adversarial images to look at", "quick", "predictor", "-images")),
    )
    return [gap for lacks, gap in lacking if lacks]


def _transfer(sources: Sources) -> list[Missing]:
    """Images of each store shown to the others that were evaluated on the same ones."""
    whole = [r for r in sources.results if r.predictor == "deployed" and r.dynamic and not r.store.manifest.union]
    if any(config.spec.attack == "stored" for r in whole for config in r.store.manifest.attacks.values()):
        return _pairs(whole)
    first = next((r for r in whole if sum(other.images == r.images for other in whole) > 1), None)
    if first is None:
        return []
    others = [r for r in whole if r.images == first.images and r is not first]
    keeping = [r for r in others if _keeps_its_grid(r)]
    what = f"transfer between the models, here to {first.label}, and so for each"
    if keeping:
        return [Missing("Table 3", what, go_on(first, sources=[folder(r) for r in keeping])[0])]
    source, target = (folder(r, "-transfer") for r in (others[0], first))
    made = again(others[0], "transfer", source)
    command = again(first, "transfer", target, sources=[source])
    return [Missing("Table 3", f"{what}; no images are kept yet", f"{made} && {command}")]


def _pairs(whole: list[Result]) -> list[Missing]:
    """The pairs of predictors on the same images that Table 3 has no number of, for each of its rows."""
    shown = [(t, s) for t in whole for s in whole if t is not s and metrics.shown_from(s.store, t.store)]
    done = [(t.subject, s.subject) for t, s in shown]
    targets = [r for r in whole if any(r is t for t, _ in shown)]
    table = targets + [r for r in whole if any(r is s for _, s in shown) and r not in targets]
    found, rows = [], []
    for target in table:
        if target.subject in rows:  # another store of the predictor is the row
            continue
        rows.append(target.subject)
        sources: list[Result] = []
        for r in sorted(table, key=_keeps_its_grid, reverse=True):
            known = [target.subject, *(s.subject for s in sources)]
            if r.images == target.images and r.subject not in known and (target.subject, r.subject) not in done:
                sources.append(r)
        if sources:
            gone = [r for r in sources if not _keeps_its_grid(r)]
            made = [again(r, "transfer", folder(r, "-transfer")) for r in gone]
            folders = [folder(r, "-transfer" if r in gone else "") for r in sources]
            what = f"transfer to {target.label} from {', '.join(r.label for r in sources)}"
            if gone:
                what += f"; no images of {', '.join(r.label for r in gone)} are kept"
            found.append(Missing("Table 3", what, " && ".join([*made, go_on(target, sources=folders)[0]])))
    return found


def _keeps_its_grid(r: Result) -> bool:
    return any(r.store.has_images(name) for name in r.grid)


def _settings(sources: Sources) -> list[Missing]:
    dynamic = [r for r in sources.results if r.predictor == "deployed" and r.dynamic]
    have = {t_f_and_r(Result(r.label, r.store, name)) for r in dynamic for name in r.store.manifest.predictors}
    states = max((r.states for r in dynamic), default=8)
    lacking = [(every, steps) for every, steps in paper.TABLE_5 if every <= states and (every, steps) not in have]
    if not lacking:
        return []
    what = f"{len(lacking)} of the 16 settings (T_f, R) of the entropy reduction"
    own = sorted(
        dynamic, key=lambda r: (r.training, r.method) not in (("TRADES", paper.RANDOM), ("TRADES", paper.BOTH))
    )
    command = again(own[0], "settings", folder(own[0], "-settings"), defence={}) if own else None
    return [Missing("Table 5", what, command or "robustdeq evaluate CKPT --suite settings --out DIR")]
