"""What a report is made from: stores of results and folders of training runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from robustdeq.evaluation.metrics import grid_attacks
from robustdeq.evaluation.snapshot import Snapshot
from robustdeq.evaluation.store import Store
from robustdeq.training.logs import read_log

DEPTH = 3
"""How far below a given folder stores and runs are looked for."""

_MODELS = {
    (32, 64, 128, 256): "mdeq-large",
    (16, 32, 64, 128): "mdeq-small",
    (16, 32, 64): "mdeq-tiny",
    (16, 32): "mdeq-nano",
    (64, 128, 256, 512): "resnet18",
    (24, 48, 96): "resnet-tiny",
}
_OBJECTIVES = {"trades": "TRADES", "pgdat": "PGD-AT", "standard": "standard"}


@dataclass(frozen=True)
class Result:
    """A predictor of a store, and what the manifest says of the method behind it."""

    label: str
    store: Store
    predictor: str = "deployed"
    """Or base: the undefended model below a defence, on which every attacked image was scored too."""

    @property
    def name(self) -> str:
        """For reading."""
        return self.label if self.predictor == "deployed" else f"{self.label} (base)"

    @property
    def grid(self) -> list[str]:
        """The intermediate-state attacks that are meant for it: for the base, those with its own gradients."""
        return [name for name in grid_attacks(self.store) if self.predictor == "deployed" or self._oblivious(name)]

    def complete(self, names: Sequence[str]) -> bool:
        """Whether there are such attacks, every one done on every image."""
        return bool(names) and not self.store.manifest["union"] and all(map(self.store.complete, names))

    def _oblivious(self, name: str) -> bool:
        return bool(self.store.manifest["attacks"][name]["group"] == "grid")

    @cached_property
    def layers(self) -> dict[str, dict[str, Any]]:
        """The deployed predictor's configuration, taken apart: kind of each wrapper or model to its settings."""
        found: dict[str, dict[str, Any]] = {}
        config: Any = self.store.manifest["model"]["config"]
        while isinstance(config, dict):
            found[config["kind"]] = config
            config = config.get("predictor")
        return found

    @property
    def model(self) -> str:
        """Its name among the shipped models, or its architecture."""
        options: dict[str, Any] = next((c["options"] for c in self.layers.values() if "options" in c), {})
        sizes = tuple(options.get("channels") or options.get("widths") or ())
        architecture = next((c["architecture"] for c in self.layers.values() if "architecture" in c), None)
        return _MODELS.get(sizes) or str(architecture or self.store.manifest["model"]["name"])

    @property
    def training(self) -> str:
        """TRADES, PGD-AT, standard, or unknown."""
        return _OBJECTIVES.get(str(self._metadata.get("objective")), "unknown")

    @property
    def random(self) -> bool:
        """Whether it was trained with random intermediate states (Sec. 3.3)."""
        return self._metadata.get("states") == "random"

    @property
    def entropy(self) -> dict[str, Any] | None:
        """Settings of the entropy reduction (Sec. 3.2), None without it."""
        return self.layers.get("EntropyReduction") if self.predictor == "deployed" else None

    @property
    def method(self) -> str:
        """As in the paper's tables."""
        if not self.store.manifest["dynamic"]:
            return "no dynamics"
        parts = [name for name, on in (("3.2", self.entropy is not None), ("3.3", self.random)) if on]
        return f"+ Sec. {' & '.join(parts)}" if parts else "baseline"

    @property
    def eps(self) -> str:
        """The budget, as a fraction of 255 where it is one."""
        return budget(self.store.manifest["threat"]["eps"])

    @property
    def data(self) -> dict[str, Any]:
        """The manifest's words on the images."""
        content: dict[str, Any] = self.store.manifest["data"]
        return content

    @property
    def suites(self) -> list[str]:
        """Suites that were run into the store."""
        names: list[str] = self.store.manifest["suites"]
        return names

    def audit(self) -> dict[str, Any] | None:
        """What the audit found, if there was one."""
        path = self.store.folder / "audit.json"
        if not path.is_file():
            return None
        content: dict[str, Any] = json.loads(path.read_bytes())
        return content

    @property
    def _metadata(self) -> dict[str, Any]:
        return self.store.manifest["model"].get("metadata") or {}

    def differences_from_the_paper(self) -> list[str]:
        """Why its numbers cannot be compared with the paper's; empty if they can."""
        threat = self.store.manifest["threat"]
        expected = {"baseline", "+ Sec. 3.2", "+ Sec. 3.3", "+ Sec. 3.2 & 3.3"}
        wanted = "mdeq-large" if self.method in expected else "resnet18"
        reasons = []
        if self.model != wanted:
            reasons.append(f"model {self.model}")
        if self.data["name"] != "cifar10":
            reasons.append(f"data {self.data['name']}")
        elif self.data["images"] != 10_000:
            reasons.append(f"{self.data['images']} images")
        if threat["norm"] != "Linf" or abs(threat["eps"] - 8 / 255) > 1e-9:
            reasons.append(f"{threat['norm']} eps {self.eps}")
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
    results += [base for r in results if (base := _base(r, results)) is not None]
    return Sources(
        results=sorted(results, key=lambda r: (r.label, r.predictor)),
        runs=sorted((Run(label, runs[path]) for path, label in _labels(list(runs)).items()), key=lambda r: r.label),
    )


def _base(r: Result, results: list[Result]) -> Result | None:
    """The undefended model of a defended store, unless it has a store of its own."""
    base = Result(r.label, r.store, "base")
    if r.entropy is None or "base" not in r.store.manifest["predictors"]:
        return None

    def identity(x: Result) -> tuple[Any, ...]:
        return x.model, x.training, x.method, x.data["sha256"], x.store.manifest["threat"]["eps"]

    return None if any(identity(other) == identity(base) for other in results) else base


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
