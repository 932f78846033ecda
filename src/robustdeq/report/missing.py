"""Experiments of the paper that the results do not hold, with the commands that would produce them."""

from __future__ import annotations

from dataclasses import dataclass

from robustdeq.evaluation import metrics
from robustdeq.report import paper
from robustdeq.report.sources import Result, Sources

_RECIPES = {("PGD-AT", False): "pgdat", ("PGD-AT", True): "pgdat-random"} | {
    ("TRADES", False): "trades",
    ("TRADES", True): "trades-random",
}


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
    have = {(r.training, r.method) for r in sources.results}
    found = []
    for training, method in paper.TABLE_1:
        if (training, method) in have or method == "no dynamics":
            continue
        random, entropy = method in (paper.RANDOM, paper.BOTH), method in (paper.ENTROPY, paper.BOTH)
        recipe = f"{_prefix(sources)}-{_RECIPES[training, random]}"
        trained = (training, paper.RANDOM if random else paper.BASE) in have
        train = "" if trained else f"robustdeq train --recipe {recipe} --out runs/{recipe} && "
        defence = " --defence entropy" if entropy else ""
        store = f"runs/{recipe}{'-entropy' if entropy else ''}-results"
        found.append(
            Missing(
                "Table 1",
                f"{training} {method}",
                f"{train}robustdeq evaluate runs/{recipe}/best --suite paper{defence} --out {store}",
            )
        )
    return found


def _prefix(sources: Sources) -> str:
    """The family of recipes that fits the results."""
    names = {(r.data["name"], r.model) for r in sources.results}
    if any(data == "digits" for data, _ in names):
        return "digits-nano"
    return "cifar10-tiny" if any(model == "mdeq-tiny" for _, model in names) else "cifar10-large"


def _attacks(r: Result) -> list[Missing]:
    """What other suites would add to a store."""
    manifest = r.store.manifest
    groups = {c["group"] for name, c in manifest["attacks"].items() if r.store.complete(name)}
    base = f"robustdeq evaluate {manifest['model']['name']}"
    base += " --defence entropy" if r.entropy is not None else ""
    base += f" --limit {manifest['data']['limit']}" if manifest["data"]["limit"] is not None else ""
    into = f"--out {r.store.folder.as_posix()}"
    if manifest["union"]:
        what = f"{r.label}: accuracies under single attacks, which a store made with --union does not hold"
        return [Missing("Tables 1, 2, 8", what, f"{base} --suite paper --out OTHER")]
    found = []
    unfinished = [name for name in r.store.attacks if not r.store.complete(name)]
    if unfinished:
        what = (
            f"{r.label}: {len(unfinished)} of {len(r.store.attacks)} attacks; the union without them is an upper bound"
        )
        found.append(Missing("all", what, "; ".join(f"{base} --suite {suite} {into}" for suite in r.suites)))
    if manifest["dynamic"] and not r.complete(r.grid):
        found.append(Missing("Tables 1, 6, 7, 8, Figs. 3a, 5", f"{r.label}: the grid", f"{base} --suite grid {into}"))
    if "ready" not in groups:
        found.append(Missing("Table 2", f"{r.label}: PGD-10 at the final state", f"{base} --suite quick {into}"))
    if not metrics.aa_accuracy(r.store):
        found.append(Missing("Table 1", f"{r.label}: AutoAttack", f"{base} --suite autoattack {into}"))
    if manifest["dynamic"] and not any(c["diagnostics"] for c in manifest["attacks"].values()):
        what = f"{r.label}: deviations, residuals under attack, and Table 4"
        found.append(
            Missing("Table 4, Figs. 2, 3c", what, f"{base} --suite paper --out {r.store.folder.as_posix()}-paper")
        )
    if not any(r.store.has_images(name) for name in r.store.attacks):
        what = f"{r.label}: adversarial images to look at"
        command = f"{base} --suite quick --keep-images --out {r.store.folder.as_posix()}-images"
        found.append(Missing("images", what, command))
    return found


def _transfer(sources: Sources) -> list[Missing]:
    deployed = [r for r in sources.results if r.predictor == "deployed"]
    whole = [r for r in deployed if r.store.manifest["dynamic"] and not r.store.manifest["union"]]
    stored = any(c["attack"] == "stored" for r in whole for c in r.store.manifest["attacks"].values())
    if len(whole) < 2 or stored:
        return []
    command = (
        f"robustdeq evaluate {whole[0].store.manifest['model']['name']} --suite transfer --sources "
        f"{whole[1].store.folder.as_posix()} --out {whole[0].store.folder.as_posix()}-transfer"
    )
    return [Missing("Table 3", "transfer between the models", f"{command}  (and so for each pair)")]


def _settings(sources: Sources) -> list[Missing]:
    have = {(r.entropy["every"], r.entropy["descent"]["steps"]) for r in sources.results if r.entropy is not None}
    lacking = [pair for pair in paper.TABLE_5 if pair not in have]
    if not lacking:
        return []
    every, steps = lacking[0]
    what = f"{len(lacking)} of the 16 settings (T_f, R) of the entropy reduction"
    flags = f"--defence entropy --defence.every {every} --defence.steps {steps}"
    return [Missing("Table 5", what, f"robustdeq evaluate CKPT --suite grid {flags} --out DIR")]
