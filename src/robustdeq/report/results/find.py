"""Stores of evaluations and folders of training runs, found in the folders that a report is made from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from robustdeq.evaluation.store.store import Snapshot
from robustdeq.evaluation.suites.variants import MAIN
from robustdeq.host.terminal import printable
from robustdeq.report.results.benchmarks import Benchmark, holds_json, read_benchmark
from robustdeq.report.results.cases import CASE, KeptCase, read_case
from robustdeq.report.results.complete import has_part_of_grid, has_whole_grid
from robustdeq.report.results.describe import Result
from robustdeq.report.results.match import same_evaluation, t_f_and_r
from robustdeq.report.results.trainings import Run

DEPTH = 3
"""Levels of subfolders that are searched."""


@dataclass(frozen=True)
class Sources:
    """Everything a report is made from."""

    results: list[Result]
    runs: list[Run]
    benchmarks: list[Benchmark] = field(default_factory=list)
    """Files of `robustdeq bench --json`."""
    cases: list[KeptCase] = field(default_factory=list)
    """What was kept in the explorer."""

    @cached_property
    def main(self) -> list[Result]:
        """The results without those of a part of the grid, unless no result has a whole grid."""
        if not any(map(has_whole_grid, self.results)):
            return self.results
        return [r for r in self.results if not has_part_of_grid(r)]

    @property
    def aside(self) -> list[Result]:
        """The results that are not in `main`."""
        return [r for r in self.results if r not in self.main]

    @property
    def deployed(self) -> list[Result]:
        """One result per store: its deployed predictor."""
        return [r for r in self.results if r.predictor == "deployed"]


def find_sources(folders: Sequence[str | Path], warn: Callable[[str], None] = warnings.warn) -> Sources:
    """Find stores, training runs, kept cases and records of `bench` in the folders and below, sorted by name.

    Files of records may be given themselves; `warn` is told of other JSON files beside something that can be reported.
    """
    found: dict[str, dict[Path, Path]] = {"manifest.json": {}, "run.json": {}, CASE: {}}
    records: dict[Path, Benchmark] = {}
    foreign: list[str] = []
    for given in map(Path, folders):
        if given.is_file():
            if (benchmark := read_benchmark(given, given.name)) is not None:
                records.setdefault(given.resolve(), benchmark)
                continue
            foreign.append(f"{given} holds no records: expected a file that robustdeq bench --json wrote")
            if not holds_json(given):
                raise ValueError(foreign[-1])
            continue
        if not given.is_dir():
            raise FileNotFoundError(
                f"no folder or file {given}; a report is made from what evaluate, train and bench --json wrote"
            )
        below = _below(given, DEPTH)
        marked = [(mark, folder) for folder in below for mark in found if (folder / mark).is_file()]
        for mark, folder in marked:
            found[mark].setdefault(folder.resolve(), folder)
        files = [path for folder in below for path in sorted(folder.glob("*.json"))]
        read = {path.resolve(): b for path in files if (b := read_benchmark(path, path.name)) is not None}
        records = read | records
        if not marked and not read:
            raise ValueError(
                f"{given} holds no results: expected what evaluate, train or bench --json wrote, or a folder above"
            )
    if foreign and not (records or any(found.values())):
        raise ValueError(foreign[0])
    for words in foreign:
        warn(f"{words}; it is left out")
    stores, runs, kept = found.values()
    stored = [Result(label, Snapshot(stores[path])) for path, label in _labels(list(stores)).items()]
    results = [*stored, *(other for r in stored for other in [*_base(r, stored), *_oblivious(r, stored)])]
    return Sources(
        results=sorted(results, key=_place),
        runs=sorted((Run(label, runs[path]) for path, label in _labels(list(runs)).items()), key=lambda r: r.label),
        cases=[read_case(label, kept[path]) for path, label in sorted(_labels(list(kept)).items(), key=lambda k: k[1])],
        benchmarks=[replace(records[path], label=label) for path, label in sorted(_labels(list(records)).items())],
    )


def _place(r: Result) -> tuple[str, bool, int]:
    """By store; a defence's base stands before it, defences beside an undefended model as the store lists them."""
    return r.label, r.predictor != "base", list(r.manifest.predictors).index(r.predictor)


def _base(r: Result, stored: list[Result]) -> list[Result]:
    """The undefended model of a defended store, unless it has a store of its own."""
    base = Result(r.label, r.store, r.undefended or "")
    return [] if r.undefended is None or any(same_evaluation(base, other) for other in stored) else [base]


def _oblivious(r: Result, stored: list[Result]) -> list[Result]:
    """The defences around an undefended store's model at the paper's main settings; the others are in Table 5.

    A defence with a whole grid in a store of its own, where it was attacked itself, is left out.
    """
    beside = [Result(r.label, r.store, name) for name in r.manifest.predictors if r.entropy is None]
    return [
        other
        for other in beside
        if other.undefended == "deployed"
        and t_f_and_r(other) == MAIN
        and not any(has_whole_grid(x) for x in stored if same_evaluation(x, other))
    ]


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
        labels[path] = printable("/".join(end)).replace("\n", "\\n")
    return labels
