"""Experiments of the paper that the results do not hold, with the commands that would produce them."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature

from robustdeq.evaluation import evaluate
from robustdeq.evaluation.variants import MAIN, changed_switches
from robustdeq.report import paper
from robustdeq.report.sources import Result, Sources, t_f_and_r
from robustdeq.threat import number

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
    for r in (r for r in sources.results if r.predictor == "deployed"):
        found += _attacks(r)
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
        train = "" if own else f"robustdeq train --recipe {recipe} --out runs/{recipe} && "
        evaluate = f"robustdeq evaluate runs/{recipe}/best" if own is None else _evaluate(own)
        defence = " --defence entropy" if entropy else ""
        store = f"runs/{recipe}{'-entropy' if entropy else ''}-results"
        what = f"{training} {method}"
        if (training, method) in shown:
            what += ": attacks on the defended model itself, and its AutoAttack; so far it is attacked obliviously"
        found.append(Missing("Table 1", what, f"{train}{evaluate}{defence} --suite paper --out {store}"))
    return found


def _resnet(training: str, prefix: str) -> list[Missing]:
    """Of equal size, where there is a recipe for one."""
    if prefix not in _RESNETS:
        return []
    recipe = f"{prefix}-{_RESNETS[prefix]}-{_RECIPES[training, False]}"
    train = f"robustdeq train --recipe {recipe} --out runs/{recipe}"
    evaluate = f"robustdeq evaluate runs/{recipe}/best --suite paper --out runs/{recipe}-results"
    return [Missing("Table 1", f"{training}, a ResNet of equal size", f"{train} && {evaluate}")]


def _prefix(sources: Sources) -> str:
    """The family of recipes that fits the results."""
    names = {(r.data["name"], r.model) for r in sources.results}
    if any(data == "digits" for data, _ in names):
        return "digits-nano"
    return "cifar10-tiny" if any(model == "mdeq-tiny" for _, model in names) else "cifar10-large"


def _evaluate(r: Result) -> str:
    """The command for the model of a store, without its defence, with every flag that the store insists on."""
    manifest = r.store.manifest
    given = {"limit": r.data["limit"]} | {key: manifest.get(key) for key in ("batch_size", "shard_size", "seed")}
    threat, trained_for = manifest["threat"], manifest["model"]["metadata"].get("eps")
    given["norm"] = threat["norm"]
    if trained_for is None or number(trained_for, "eps") != threat["eps"]:
        given["eps"] = r.eps
    if r.dynamic:
        given["state"] = r.state if r.state != str(min(8, r.states)) else None
    told = {key.replace("_", "-"): value for key, value in given.items() if value not in (None, _USUAL.get(key))}
    return " ".join([f"robustdeq evaluate {manifest['model']['name']}", *(f"--{k} {v}" for k, v in told.items())])


_USUAL = {key: p.default for key, p in signature(evaluate).parameters.items()} | {"norm": "Linf"}


def _again(r: Result) -> str:
    """The command for what is deployed in a store, up to the suite."""
    entropy = r.entropy
    if entropy is None:
        return _evaluate(r)
    flags = {"every": entropy["every"], "steps": entropy["descent"]["steps"], "variant": entropy["variant"]}
    usual = {"every": MAIN[0], "steps": MAIN[1], "variant": "paper"}
    given = {k: v for k, v in flags.items() if v != usual[k]}
    given |= changed_switches(entropy)
    return " ".join([_evaluate(r), "--defence entropy", *(f"--defence.{k} {str(v).lower()}" for k, v in given.items())])


def _asked(r: Result) -> list[str]:
    """The suites of a store, as they were asked for."""
    asked = r.store.manifest.get("asked") or [{"suite": name, "aware": False} for name in r.suites]
    return [f"{'--aware ' if entry['aware'] else ''}--suite {entry['suite']}" for entry in asked]


def _attacks(r: Result) -> list[Missing]:
    """What other suites would add to a store; only one that scores the same predictors may go into its folder."""
    manifest, folder = r.store.manifest, r.store.folder.as_posix()
    planned = manifest["attacks"].values()
    groups = {config["group"] for config in planned}
    again = _again(r)
    if manifest["union"]:
        what = f"{r.label}: accuracies under single attacks, which a store made with --union does not hold"
        return [Missing("Tables 1, 2, 8", what, f"{again} --suite paper --out OTHER")]
    found = []
    unfinished = [name for name in r.store.attacks if not r.store.complete(name)]
    if unfinished:
        what = (
            f"{r.label}: {len(unfinished)} of {len(r.store.attacks)} attacks; the union without them is an upper bound"
        )
        found.append(Missing("all", what, "; ".join(f"{again} {suite} --out {folder}" for suite in _asked(r))))
    of_grid = r.whole_grid - len(r.oblivious_grid) if r.dynamic else 0
    diagnosed = "ready" not in groups or any(config["diagnostics"] for config in planned)
    pictures = any(map(r.store.has_images, r.store.attacks))
    lacking = (
        ("Tables 1, 6, 7, 8, Figs. 3a, 5", f"{of_grid} of the grid's {r.whole_grid} attacks", "grid", of_grid > 0),
        ("Table 2", "PGD-10 at the final state", "quick", "ready" not in groups),
        ("Table 1", "AutoAttack", "autoattack", not any(config["is_aa"] for config in planned)),
        ("Table 4", "APGD-CE and Square", "table4", r.dynamic and r.states >= 3 and "table4" not in groups),
        ("Figs. 2, 3c", "deviations and residuals under attack", "quick", r.dynamic and not diagnosed),
        ("images", "adversarial images to look at", "quick --keep-images", not pictures),
    )
    alone = set(manifest["predictors"]) <= {"deployed", "base"}
    for item, what, suite, lacks in lacking:
        if lacks:
            here = alone and item not in ("Figs. 2, 3c", "images")  # what is done is not done again
            into = folder if here else f"{folder}-{suite.split()[0]}"
            found.append(Missing(item, f"{r.label}: {what}", f"{again} --suite {suite} --out {into}"))
    return found


def _transfer(sources: Sources) -> list[Missing]:
    """Images of each store shown to the others that were evaluated on the same ones."""
    whole = [r for r in sources.results if r.predictor == "deployed" and r.dynamic and not r.store.manifest["union"]]
    if any(config["attack"] == "stored" for r in whole for config in r.store.manifest["attacks"].values()):
        return []
    first = next((r for r in whole if sum(other.images == r.images for other in whole) > 1), None)
    if first is None:
        return []
    others = [r for r in whole if r.images == first.images and r is not first]
    keeping = [r for r in others if any(r.store.has_images(name) for name in r.grid)]
    what = "transfer between the models"
    if keeping:
        folders, own = " ".join(r.store.folder.as_posix() for r in keeping), first.store.folder.as_posix()
        command = f"{_again(first)} {_asked(first)[0]} --sources {folders} --out {own}"
        return [Missing("Table 3", what, f"{command}  (and so for each)")]
    source, target = (f"{r.store.folder.as_posix()}-transfer" for r in (others[0], first))
    made = f"{_again(others[0])} --suite transfer --out {source}"
    command = f"{_again(first)} --suite transfer --sources {source} --out {target}"
    return [Missing("Table 3", f"{what}, of which no images are kept", f"{made} && {command}  (and so for each pair)")]


def _settings(sources: Sources) -> list[Missing]:
    dynamic = [r for r in sources.results if r.predictor == "deployed" and r.dynamic]
    have = {t_f_and_r(Result(r.label, r.store, name)) for r in dynamic for name in r.store.manifest["predictors"]}
    states = max((r.states for r in dynamic), default=8)
    lacking = [(every, steps) for every, steps in paper.TABLE_5 if every <= states and (every, steps) not in have]
    if not lacking:
        return []
    what = f"{len(lacking)} of the 16 settings (T_f, R) of the entropy reduction"
    own = sorted(
        dynamic, key=lambda r: (r.training, r.method) not in (("TRADES", paper.RANDOM), ("TRADES", paper.BOTH))
    )
    command = f"{_evaluate(own[0])} --suite settings --out {own[0].store.folder.as_posix()}-settings" if own else None
    return [Missing("Table 5", what, command or "robustdeq evaluate CKPT --suite settings --out DIR")]
