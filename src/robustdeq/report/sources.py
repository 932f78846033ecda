"""What a report is made from: stores of results and folders of training runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.manifest import DataRecord, EntropyRecord, PredictorRecord
from robustdeq.evaluation.store.snapshot import Snapshot
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.attacks import DAMPINGS, UNROLLINGS
from robustdeq.evaluation.suites.variants import MAIN
from robustdeq.threat import Linf
from robustdeq.training.logs import read_log

GRID = 144
"""The paper's intermediate-state attacks."""
DEPTH = 3
"""How far below a given folder stores and runs are looked for."""

_OBJECTIVES = {"trades": "TRADES", "pgdat": "PGD-AT", "standard": "standard"}


@dataclass(frozen=True)
class Result:
    """A predictor of a store, and what the manifest says of the method behind it."""

    label: str
    store: Store
    predictor: str = "deployed"
    """Or another that every attacked image was scored on too: base, the undefended model below a defence; or a defence
    around the undefended model that was attacked, such as entropy-paper."""

    @property
    def record(self) -> PredictorRecord:
        """The predictor in the manifest."""
        return self.store.manifest.predictors[self.predictor]

    @property
    def oblivious(self) -> bool:
        """Whether it is a defence that saw only images made against the undefended model, and was not attacked."""
        return self.predictor not in ("deployed", "base")

    @property
    def name(self) -> str:
        """For reading."""
        if self.predictor == "deployed":
            return self.label
        return f"{self.label} ({self.predictor}{', oblivious' if self.oblivious else ''})"

    @property
    def undefended(self) -> str | None:
        """The predictor of the same store that is the model without its defence."""
        name = "deployed" if self.oblivious else "base"
        return name if self.entropy is not None and name in self.store.manifest.predictors else None

    @property
    def dynamic(self) -> bool:
        """Whether it has states to look into."""
        return self.store.manifest.dynamic

    @property
    def grid(self) -> list[str]:
        """The intermediate-state attacks that are meant for it: if it is not deployed, the oblivious ones."""
        return metrics.grid_attacks(self.store) if self.predictor == "deployed" else self.oblivious_grid

    @property
    def oblivious_grid(self) -> list[str]:
        """The intermediate-state attacks with gradients of the undefended model."""
        configs = self.store.manifest.attacks
        return [name for name in metrics.grid_attacks(self.store) if configs[name].spec.group == "grid"]

    @property
    def states(self) -> int:
        """How many the dynamics have, without the final one."""
        return len(self.record.states) - 1

    @property
    def whole_grid(self) -> int:
        """How many attacks the oblivious grid of as many states has; the paper's 144 of 8."""
        return len(UNROLLINGS) * len(DAMPINGS) * self.states

    @property
    def whole(self) -> bool:
        """Whether the whole oblivious grid was run on every image; not a part of it, such as the strongest."""
        return len(self.oblivious_grid) == self.whole_grid and self.complete(self.grid)

    @property
    def aside(self) -> bool:
        """Whether it was meant for a part of the grid or none, and no AutoAttack: none of the paper's rows."""
        configs = self.store.manifest.attacks.values()
        part = self.dynamic and len(self.oblivious_grid) < self.whole_grid
        return part and not any(config.spec.is_standard_autoattack for config in configs)

    @property
    def minimum_attacks(self) -> list[str]:
        """What the paper takes the minimum over."""
        return self.grid if self.dynamic else metrics.minimum_attacks(self.store)

    def complete(self, names: Sequence[str]) -> bool:
        """Whether there are such attacks, every one done on every image."""
        return bool(names) and not self.store.manifest.union and all(map(self.store.complete, names))

    @property
    def unfinished(self) -> list[str]:
        """The attacks that its union lacks: they count, and are not done on every image."""
        return [name for name in metrics.judged_attacks(self.store) if not self.store.complete(name)]

    @cached_property
    def layers(self) -> dict[str, dict[str, Any]]:
        """The predictor's configuration, taken apart: kind of each wrapper or model to its settings."""
        return self.record.layers

    @property
    def model(self) -> str:
        """Its name among the shipped models, or its architecture."""
        return self.store.manifest.model.kind

    @property
    def training(self) -> str:
        """TRADES, PGD-AT, standard, or unknown."""
        return _OBJECTIVES.get(str(self.metadata.get("objective")), "unknown")

    @property
    def random(self) -> bool:
        """Whether it was trained with random intermediate states (Sec. 3.3)."""
        return self.metadata.get("states") == "random"

    @property
    def trained(self) -> tuple[Any, ...]:
        """What else two trainings must share for their difference to be that of their states: seed and penalty."""
        return self.model, self.training, self.metadata.get("seed"), self.metadata.get("jacobian")

    @property
    def weights(self) -> str | None:
        """Checksum of the undefended model's weights, None where the store does not hold that."""
        predictors = self.store.manifest.predictors
        name = self.predictor if self.entropy is None else self.undefended
        return None if name is None else predictors[name].weights_sha256

    @property
    def subject(self) -> tuple[Any, ...]:
        """The same for all results of a predictor: weights, solver, defence and the state that predicts.

        Where the store holds no checksum of the weights, nothing says that another is of the same ones.
        """
        solved = [(config.get("solver"), config.get("gradient")) for config in self.layers.values()]
        return self.weights or self.label, self.method, self.state, self.settings, solved[-1:]

    @property
    def images(self) -> tuple[Any, ...]:
        """What two results must share to be compared image by image: images and threat."""
        return self.data.sha256, self.store.manifest.threat

    @property
    def identity(self) -> tuple[Any, ...]:
        """The same for all results of a predictor on the same images."""
        return self.subject, self.images

    @property
    def state(self) -> str:
        """The deployed one."""
        return self.record.deployed_state

    @property
    def entropy(self) -> EntropyRecord | None:
        """The entropy reduction (Sec. 3.2) in its configuration, None without it."""
        return self.record.entropy

    @property
    def settings(self) -> dict[str, Any] | None:
        """Those of the entropy reduction alone."""
        return None if self.entropy is None else dict(self.entropy.config)

    @property
    def method(self) -> str:
        """As in the paper's tables."""
        if not self.dynamic:
            return "no dynamics"
        parts = [name for name, on in (("3.2", self.entropy is not None), ("3.3", self.random)) if on]
        return f"+ Sec. {' & '.join(parts)}" if parts else "baseline"

    @property
    def described(self) -> str:
        """The method, which variant of the defence if not the paper's own, and whether only others were attacked."""
        words = [self.method]
        if self.entropy is not None and (self.oblivious or self.entropy.words != "paper"):
            words.append(f"variant {self.entropy.words}")
        return ", ".join([*words, "attacked obliviously"] if self.oblivious else words)

    @property
    def eps(self) -> str:
        """The budget, as a fraction of 255 where it is one."""
        return budget(self.store.manifest.threat.eps)

    @property
    def data(self) -> DataRecord:
        """The manifest's words on the images."""
        return self.store.manifest.data

    @property
    def suites(self) -> list[str]:
        """Suites that were run into the store."""
        return self.store.manifest.suites

    def audit(self) -> dict[str, Any] | None:
        """What the audit found, if there was one."""
        path = self.store.folder / "audit.json"
        if not path.is_file():
            return None
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content

    @property
    def metadata(self) -> dict[str, Any]:
        """What the checkpoint says of itself: data set, eps, training."""
        return self.store.manifest.model.metadata

    def differences_from_the_paper(self) -> list[str]:
        """Why its numbers cannot be compared with the paper's; empty if they can."""
        threat = self.store.manifest.threat
        expected = {"baseline", "+ Sec. 3.2", "+ Sec. 3.3", "+ Sec. 3.2 & 3.3"}
        wanted = "mdeq-large" if self.method in expected else "resnet18"
        reasons = []
        if self.model != wanted:
            reasons.append(f"model {self.model}")
        if self.data.name != "cifar10":
            reasons.append(f"data {self.data.name}")
        elif self.data.images != 10_000:
            reasons.append(f"{self.data.images} images")
        if not isinstance(threat, Linf) or abs(threat.eps - 8 / 255) > 1e-9:
            reasons.append(f"{type(threat).__name__} eps {self.eps}")
        if self.entropy is not None and self.entropy.changed_switches:
            reasons.append(f"variant {self.entropy.words}")
        if self.oblivious_grid and len(self.oblivious_grid) != GRID:
            reasons.append(f"{len(self.oblivious_grid)} of the {GRID} attacks")
        return reasons


@dataclass(frozen=True)
class Run:
    """A training run's folder."""

    label: str
    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """As it was run."""
        content: dict[str, Any] = json.loads((self.folder / "run.json").read_bytes())["config"]
        return content

    def validation(self) -> list[tuple[float, float, float]]:
        """(epoch, clean, PGD) at each validation; a step is a fraction of an epoch."""
        rows = read_log(self.folder)
        per_epoch = max((sum(r["epoch"] == "0" for r in rows), 1))
        return [
            (int(r["step"]) / per_epoch, float(r["validation_clean"]), float(r["validation_pgd"]))
            for r in rows
            if r["validation_pgd"]
        ]


@dataclass(frozen=True)
class Sources:
    """All that was found."""

    results: list[Result]
    runs: list[Run]

    @cached_property
    def main(self) -> list[Result]:
        """Without those that stand aside, if any other has a whole grid."""
        return [r for r in self.results if not r.aside] if any(r.whole for r in self.results) else self.results

    @property
    def aside(self) -> list[Result]:
        """The rest."""
        return [r for r in self.results if r not in self.main]


def find_sources(folders: Sequence[str | Path]) -> Sources:
    """Stores (manifest.json) and training runs (run.json) in the folders and below them, sorted by name."""
    stores: dict[Path, Path] = {}
    runs: dict[Path, Path] = {}
    for given in map(Path, folders):
        if not given.is_dir():
            raise FileNotFoundError(f"no folder {given}; a report is made from what evaluate and train wrote")
        found = False
        for folder in _below(given, DEPTH):
            for kind, mark in ((stores, "manifest.json"), (runs, "run.json")):
                if (folder / mark).is_file():
                    kind.setdefault(folder.resolve(), folder)
                    found = True
        if not found:
            raise ValueError(f"{given} holds no results: expected what evaluate or train wrote, or a folder above")
    results = [Result(label, Snapshot(stores[path])) for path, label in _labels(list(stores)).items()]
    stored = list(results)
    results += [base for r in stored if (base := _base(r, stored)) is not None]
    results += [other for r in stored for other in _oblivious(r, stored)]
    return Sources(
        results=sorted(results, key=lambda r: (r.label, r.predictor)),
        runs=sorted((Run(label, runs[path]) for path, label in _labels(list(runs)).items()), key=lambda r: r.label),
    )


def _base(r: Result, stored: list[Result]) -> Result | None:
    """The undefended model of a defended store, unless it has a store of its own."""
    if r.undefended is None:
        return None
    base = Result(r.label, r.store, r.undefended)
    return None if any(other.identity == base.identity for other in stored) else base


def _oblivious(r: Result, stored: list[Result]) -> list[Result]:
    """The defences around an undefended store's model at the paper's main settings, Table 5 has the others.

    Without those that have a store of their own with a grid, in which they are attacked themselves too.
    """
    found = []
    for other in (Result(r.label, r.store, name) for name in r.store.manifest.predictors):
        if other.undefended != "deployed" or r.entropy is not None or t_f_and_r(other) != MAIN:
            continue
        same = [x for x in stored if x.identity == other.identity]
        if not any(x.whole for x in same):
            found.append(other)
    return found


def t_f_and_r(r: Result) -> tuple[int, int] | None:
    """Of its entropy reduction, if it has one."""
    return None if r.entropy is None else (r.entropy.every, r.entropy.steps)


def budget(eps: float) -> str:
    """8/255 for 0.03137."""
    steps = eps * 255
    return f"{round(steps)}/255" if abs(steps - round(steps)) < 1e-6 else f"{eps:g}"


def _below(folder: Path, depth: int) -> list[Path]:
    found = [folder]
    if depth and not (folder / "manifest.json").is_file():
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.name.startswith("."):
                found += _below(child, depth - 1)
    return found


def _labels(folders: list[Path]) -> dict[Path, str]:
    """The shortest ends of the paths that tell them apart."""
    labels: dict[Path, str] = {}
    for path in folders:
        for length in range(1, len(path.parts) + 1):
            end = path.parts[-length:]
            if sum(other.parts[-length:] == end for other in folders) == 1:
                break
        labels[path] = "/".join(end)
    return labels
