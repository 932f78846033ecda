"""Suites: the named ones, and a user's own as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.sources import named_sources
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.context import Setting
from robustdeq.evaluation.suites.shipped import SUITES
from robustdeq.evaluation.suites.stored import stored_attacks
from robustdeq.evaluation.suites.suite import Suite
from robustdeq.evaluation.suites.variants import read_also
from robustdeq.host.suggestions import did_you_mean
from robustdeq.threat import number

WITHOUT_DYNAMICS = (
    "the predictor has no dynamics to look into: every gradient is the predictor's own (oracle direct), "
    "and the grid of intermediate-state attacks is the one attack pgd-direct"
)
DEPLOYED_ONLY = (
    "under --union images leave by what the deployed predictor does: further predictors of the suite are not scored, "
    "and images, those of survivors only, are not kept unless told"
)


def make_suite(name: str | Path, setting: Setting) -> Suite:
    """A named suite, or a user's own from a YAML file, for this predictor and threat."""
    builder = SUITES.get(str(name))
    if builder is not None:
        suite = _for_union(builder(setting)) if setting.union else builder(setting)
    elif Path(name).suffix in (".yaml", ".yml") or Path(name).is_file():
        suite = read_suite(Path(name), setting)
    else:
        hint = did_you_mean(str(name), SUITES, f"known are {', '.join(SUITES)}, or a YAML file")
        raise ValueError(f"no suite named {name}; {hint}")
    if setting.subject.dynamic is None and WITHOUT_DYNAMICS not in suite.notes:
        suite = replace(suite, notes=[*suite.notes, WITHOUT_DYNAMICS])
    suite = replace(suite, specs=[*suite.specs, *_shown(setting)])
    names = [spec.name for spec in suite.specs]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"suite {name}: attacks need names of their own; {', '.join(twice)} stands there twice")
    return suite


def _for_union(suite: Suite) -> Suite:
    """Without what could not be read afterwards: `metrics` know the union of the deployed predictor alone."""
    if not suite.also and not suite.keep_images:
        return suite
    return replace(suite, also={}, keep_images=False, notes=[*suite.notes, DEPLOYED_ONLY])


def _shown(setting: Setting) -> list[AttackSpec]:
    """The images of the sources, as attacks."""
    folder = Path() if setting.store is None else setting.store.folder
    manifest = None if setting.store is None else setting.store.read_manifest()
    sources = named_sources(setting.sources, {} if manifest is None else manifest.attacks, folder)
    if setting.data is None:
        return []
    return [spec for source in sources for spec in stored_attacks(source, setting.data)]


_OWN = [f.name for f in fields(AttackSpec) if f.name not in ("group",)]


def read_suite(path: Path, setting: Setting) -> Suite:
    """A user's own suite: `attacks`, a list of mappings with the fields of AttackSpec, each with a name.

    eps may be written 8/255; eps and norm are the evaluation's own if not given, PGD takes 10 steps of a quarter of
    eps, and the oracle is the ready-made one (direct without dynamics). `include: [grid, ...]` adds whole suites, with
    the further predictors that they score images on. `also: {mine: {every: 4, steps: 5}}` scores them on these entropy
    reductions around the model instead, and `keep_images: true` or `false` decides whatever the included suites say.
    `strongest: {of: DIR, count: 8}` leaves of the grid the attacks at the (i, K_a, lambda) that were strongest in
    another store. An unknown key is an error.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"no suite file {path}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a suite: expected a mapping with 'attacks' or 'include' at the top")
    _known(path, content, ["name", "include", "attacks", "keep_images", "also", "strongest"])
    include = content.get("include") or []
    names = [include] if isinstance(include, str) else include
    included = [make_suite(name, replace(setting, sources=())) for name in names]
    own = [_own_attack(path, entry, setting) for entry in content.get("attacks") or []]
    specs = [*_once(spec for suite in included for spec in suite.specs), *own]
    if not specs:
        raise ValueError(f"{path} names no attack: give 'attacks' or 'include'")
    keep = bool(content.get("keep_images", any(suite.keep_images for suite in included)))
    notes = list(dict.fromkeys(note for suite in included for note in suite.notes))
    if "strongest" in content:
        specs, note = _strongest(path, content["strongest"], specs)
        notes.append(note)
    also = {name: other for suite in included for name, other in suite.also.items()}
    if "also" in content:
        if content["also"] and setting.union:
            raise ValueError(f"{path}: also: --union judges the deployed predictor alone: leave one of them away")
        try:
            also = read_also(content["also"] or {}, setting.subject)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return Suite(str(content.get("name", path.stem)), specs, notes, keep, also)


def _once(specs: Iterable[AttackSpec]) -> list[AttackSpec]:
    """Without attacks that several suites share: the same name and the same in every setting."""
    return list({(spec.name, spec.hash): spec for spec in reversed(list(specs))}.values())[::-1]


def _strongest(path: Path, content: Any, specs: list[AttackSpec]) -> tuple[list[AttackSpec], str]:
    """Of the grid the attacks at the oracles that were strongest elsewhere, with all other attacks; and a note."""
    if not isinstance(content, dict) or set(content) != {"of", "count"} or not isinstance(content["of"], str):
        raise ValueError(f"{path}: strongest: expected a store and a number, such as {{of: runs/grid, count: 8}}")
    folder, count = content["of"], content["count"]
    if type(count) is not int or count < 1:
        raise ValueError(f"{path}: strongest: count is a number of attacks, at least 1 (got {count!r})")
    grid = {_oracle(spec) for spec in specs if spec.in_grid}
    if not grid:
        raise ValueError(
            f"{path}: strongest: there is no grid to choose from: add 'grid' to 'include', and choose a predictor with "
            "dynamics"
        )
    try:
        chosen = metrics.strongest_oracles(Store(folder), count)
    except ValueError as error:
        raise ValueError(f"{path}: strongest: {error}") from error
    if unknown := set(chosen) - grid:
        raise ValueError(f"{path}: strongest: {folder} has (i, K_a, lambda) that this grid has not: {sorted(unknown)}")
    note = (
        f"of the grid only the {len(chosen)} (i, K_a, lambda) that were strongest on what is deployed in {folder}: of "
        "any other predictor their minimum is an upper bound"
    )
    return [spec for spec in specs if not spec.in_grid or _oracle(spec) in chosen], note


def _oracle(spec: AttackSpec) -> tuple[Any, ...]:
    """(i, K_a, lambda)."""
    return tuple(spec.oracle_options[name] for name in ("state", "steps", "damping"))


def _own_attack(path: Path, entry: Any, setting: Setting) -> AttackSpec:
    if not isinstance(entry, dict) or "name" not in entry:
        raise ValueError(f"{path}: an attack is a mapping with a name, got {entry!r}")
    _known(path, entry, _OWN)
    values = {**setting.ball, "oracle": "direct" if setting.subject.dynamic is None else "ready", **entry}
    values["eps"] = number(values["eps"], f"{path}: eps")
    options = values.get("options") or {}
    if not isinstance(options, dict):
        raise ValueError(f"{path}: attack {entry['name']}: options: expected a mapping, got {options!r}")
    if values.get("attack") == "pgd":  # as the named suites have it; an attack's own default is for the paper's radius
        options = {**setting.pgd, "step_size": values["eps"] / 4, **options}
        options["step_size"] = number(options["step_size"], f"{path}: attack {entry['name']}: step_size")
    values["options"] = options
    try:
        return AttackSpec(**values)
    except TypeError as error:
        raise ValueError(f"{path}: attack {entry['name']}: {error}") from None


def _known(path: Path, content: dict[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise ValueError(f"{path}: unknown key {key!r}; {did_you_mean(str(key), known, quoted=True)}")
