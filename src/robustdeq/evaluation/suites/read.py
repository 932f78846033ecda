"""`make_suite`: a suite from its name, from a YAML file, or from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.sources import named_sources, stored_attacks
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.build import with_code
from robustdeq.evaluation.suites.shipped import SUITES
from robustdeq.evaluation.suites.suite import Context, Suite, SuiteChoice
from robustdeq.evaluation.suites.variants import read_also
from robustdeq.host.suggestions import did_you_mean
from robustdeq.host.yaml_files import read_yaml
from robustdeq.threat import number

WITHOUT_DYNAMICS = (
    "the predictor has no dynamics to look into: every gradient is the predictor's own (oracle direct), "
    "and the grid of intermediate-state attacks is the one attack pgd-direct"
)
DEPLOYED_ONLY = (
    "under --union images leave by what the deployed predictor does: further predictors of the suite are not scored, "
    "and images, those of survivors only, are not kept unless told"
)
KEYS = ("name", "include", "attacks", "keep_images", "also", "strongest")
ATTACK_KEYS = tuple(f.name for f in fields(AttackSpec) if f.name not in ("group", "code"))


def make_suite(wanted: SuiteChoice, context: Context) -> Suite:
    """The suite for this context, with the images of the context's sources as further attacks."""
    builder = SUITES.get(wanted) if isinstance(wanted, str) else wanted
    if isinstance(builder, Suite):
        suite = builder
    elif callable(builder):
        suite = builder(context)
        if context.union and (suite.also or suite.keep_images):  # such a run knows the deployed predictor's union alone
            suite = replace(suite, also={}, keep_images=False, notes=[*suite.notes, DEPLOYED_ONLY])
    elif Path(str(wanted)).suffix in (".yaml", ".yml") or os.path.isfile(str(wanted)):
        suite = read_suite(Path(str(wanted)), context)
    else:
        hint = did_you_mean(str(wanted), SUITES, f"known are {', '.join(SUITES)}, or a YAML file")
        raise ValueError(f"no suite named {wanted}; {hint}")
    notes = suite.notes if context.dynamic else dict.fromkeys([*suite.notes, WITHOUT_DYNAMICS])
    shown: list[AttackSpec] = []
    if context.data is not None and context.store is not None:
        manifest = context.store.read_manifest()
        sources = named_sources(context.sources, {} if manifest is None else manifest.attacks, context.store.folder)
        shown = [spec for source in sources for spec in stored_attacks(source, context.data)]
    suite = replace(suite, specs=[*map(with_code, suite.specs), *shown], notes=list(notes))
    names = [spec.name for spec in suite.specs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"suite {suite.name}: attacks need different names; {', '.join(twice)} stands there twice")
    return suite


def read_suite(path: Path, context: Context) -> Suite:
    """Read a suite file. An unknown key is an error.

    `attacks` is a list of mappings with the fields of `AttackSpec`, each with a name. eps may be written 8/255; eps and
    norm default to the evaluation's, PGD to 10 steps of a quarter of eps, the oracle to the ready-made one (direct
    without dynamics). `include: [grid, ...]` adds whole suites with the further predictors they score images on.
    `also: {mine: {every: 4, steps: 5}}` scores images on these entropy reductions instead. `keep_images` overrides the
    included suites. `strongest: {of: DIR, count: 8}` keeps, of the grid, only the attacks at the (i, K_a, lambda) that
    were strongest in another store.
    """
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise ValueError(f"no suite file {path}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a suite: expected a mapping with 'attacks' or 'include' at the top")
    _check_keys(path, content, KEYS)
    file = path.resolve()
    if file in context.files:
        raise ValueError(f"{path} includes itself, by way of {', '.join(map(str, context.files))}")
    names = [content["include"]] if isinstance(content.get("include"), str) else _list(path, content, "include")
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: include: expected names of suites or files, got {names!r}")
    included = [make_suite(name, replace(context, sources=(), files=(*context.files, file))) for name in names]
    shared = {(spec.name, spec.hash): spec for suite in reversed(included) for spec in reversed(suite.specs)}
    specs = [
        *reversed(shared.values()),
        *(_own_attack(path, entry, context) for entry in _list(path, content, "attacks")),
    ]
    if not specs:
        raise ValueError(f"{path} names no attack: give 'attacks' or 'include'")
    notes = list(dict.fromkeys(note for suite in included for note in suite.notes))
    if "strongest" in content:
        specs, note = _strongest(path, content["strongest"], specs)
        notes.append(note)
    also = {name: other for suite in included for name, other in suite.also.items()}
    if "also" in content:
        if content["also"] and context.union:
            raise ValueError(f"{path}: also: --union judges the deployed predictor alone: leave one of them away")
        try:
            also = read_also(content["also"] or {}, context.subject)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    keep = content.get("keep_images", any(suite.keep_images for suite in included))
    if not isinstance(keep, bool):
        raise ValueError(f"{path}: keep_images: expected true or false, got {keep!r}")
    return Suite(str(content.get("name", path.stem)), specs, notes, keep, also)


def _list(path: Path, content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key) or []
    if not isinstance(found, list):
        raise ValueError(f"{path}: {key}: expected a list, got {found!r}")
    return found


def _strongest(path: Path, content: Any, specs: list[AttackSpec]) -> tuple[list[AttackSpec], str]:
    """All attacks outside the grid, those of the grid at the oracles that were strongest elsewhere, and a note."""
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
    """(i, K_a, lambda) of an attack of the grid."""
    return tuple(spec.oracle_options[name] for name in ("state", "steps", "damping"))


def _own_attack(path: Path, entry: Any, context: Context) -> AttackSpec:
    """One entry of `attacks`, with defaults filled in."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise ValueError(f"{path}: an attack is a mapping with a name, got {entry!r}")
    _check_keys(path, entry, ATTACK_KEYS)
    where = f"{path}: attack {entry['name']}"
    values = {**context.ball, "oracle": "ready" if context.dynamic else "direct", **entry}
    values["eps"] = number(values["eps"], f"{path}: eps")
    options = values.get("options") or {}
    if not isinstance(options, dict):
        raise ValueError(f"{where}: options: expected a mapping, got {options!r}")
    if values.get("attack") == "pgd":
        options = {**context.pgd, "step_size": values["eps"] / 4, **options}
        options["step_size"] = number(options["step_size"], f"{where}: step_size")
    try:
        return AttackSpec(**{**values, "options": options})
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_keys(path: Path, content: dict[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise ValueError(f"{path}: unknown key {key!r}; {did_you_mean(str(key), known, quoted=True)}")
