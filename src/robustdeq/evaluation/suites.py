"""Named lists of attacks, and a user's own as YAML."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from robustdeq.evaluation.labels import source_labels
from robustdeq.evaluation.specs import SANITY, AttackSpec
from robustdeq.evaluation.store import Store
from robustdeq.evaluation.subject import Callee, Subject
from robustdeq.evaluation.variants import entropy_reduced, read_also, table_5_settings, two_variants
from robustdeq.threat import Threat

UNROLLINGS = range(1, 10)
"""K_a of the grid."""
DAMPINGS = (0.5, 1.0)
"""lambda of the grid."""
TABLE_4 = ((3, 5), (3, 4), (3, 6), (3, 7), (4, 5), (5, 5), (6, 5))
"""The paper's strongest (i, K_a), under which it also ran APGD-CE and Square."""


@dataclass(frozen=True)
class Suite:
    """Attacks in the order they run in, and what the reader of their results must know."""

    name: str
    specs: list[AttackSpec]
    notes: list[str] = field(default_factory=list)
    keep_images: bool = False
    """Transfer is scored on the images."""
    also: Mapping[str, Callee] = field(default_factory=dict)
    """Further predictors that the images are scored on."""


@dataclass(frozen=True)
class Setting:
    """What the attacks of a suite depend on."""

    subject: Subject
    threat: Threat
    aware: bool = False
    """On a defended predictor: gradients of the defended pass too."""
    store: Store | None = None
    """Where results go; AutoAttack looks there for the grid's strongest oracle."""
    union: bool = False
    """Broken images leave, so that no attack of a grid can be called the strongest."""
    sources: Sequence[Path] = ()
    """Stores whose kept images are scored on the predictor."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says of the images; those of the sources must be the same."""

    @property
    def ball(self) -> dict[str, Any]:
        """The threat as fields of a specification."""
        return {"norm": type(self.threat).__name__, "eps": self.threat.eps}

    @property
    def pgd(self) -> dict[str, Any]:
        """PGD-10 with steps of a quarter of the radius: 2/255 at 8/255."""
        return {"steps": 10, "step_size": self.threat.eps / 4}

    @property
    def defended(self) -> bool:
        """Whether there is something that an attacker may know or not know of."""
        return self.subject.undefended is not None


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
        close = difflib.get_close_matches(str(name), SUITES, n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(SUITES)}, or a YAML file"
        raise ValueError(f"no suite named {name}; {hint}")
    if setting.subject.dynamic is None and WITHOUT_DYNAMICS not in suite.notes:
        suite = replace(suite, notes=[*suite.notes, WITHOUT_DYNAMICS])
    labels = source_labels(setting.sources, _manifest_attacks(setting.store))
    stored = [spec for folder, label in labels.items() for spec in stored_attacks(folder, setting, label)]
    suite = replace(suite, specs=[*suite.specs, *stored])
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


def ready(setting: Setting, *, aware: bool = False, **changes: Any) -> AttackSpec:
    """PGD-10 at the final state, K = 9; for predictors without dynamics with their own gradient."""
    if setting.subject.dynamic is None:
        name, oracle = "pgd-direct", "direct"
    else:
        name, oracle = "pgd-ready", "ready"
    options = {"view": "aware"} if aware and oracle == "ready" else {}
    name = f"{name}-aware" if aware and options else name
    spec = AttackSpec(
        name=name,
        attack="pgd",
        options=setting.pgd,
        oracle=oracle,
        oracle_options=options,
        group="ready",
        **setting.ball,
    )
    return replace(spec, **changes)


def grid_name(state: int, steps: int, damping: float, *, attack: str = "pgd", aware: bool = False) -> str:
    """pgd-i3-K5-l0.5."""
    return f"{attack}{'-aware' if aware else ''}-i{state}-K{steps}-l{damping:g}"


def unrolled(setting: Setting, state: int, steps: int, damping: float, *, aware: bool = False) -> AttackSpec:
    """PGD-10 on z^[i] unrolled K_a times: one attack of the grid."""
    return AttackSpec(
        name=grid_name(state, steps, damping, aware=aware),
        attack="pgd",
        options=setting.pgd,
        oracle="unrolled",
        oracle_options={"state": state, "steps": steps, "damping": damping, "form": "paper", "aware": aware},
        group="grid-aware" if aware else "grid",
        **setting.ball,
    )


def grid(setting: Setting) -> list[AttackSpec]:
    """The 144 attacks (N = 8), oblivious; aware ones too when asked for."""
    if setting.subject.dynamic is None:
        return [ready(setting)]
    return [
        unrolled(setting, i, k, damping, aware=aware)
        for aware in ((False, True) if setting.aware and setting.defended else (False,))
        for damping in DAMPINGS
        for i in range(1, setting.subject.states + 1)
        for k in UNROLLINGS
    ]


def autoattack(setting: Setting, *, with_grid: bool) -> AttackSpec:
    """AutoAttack standard, at the grid's strongest oracle if the grid is or will be there; the name says which."""
    options: dict[str, Any] = {"values": "deployed"}
    if setting.subject.dynamic is None:
        name, oracle = "aa", "direct"
    elif with_grid and not setting.union:
        name, oracle = "aa-strongest", "strongest"
    else:
        name, oracle = "aa-ready", "ready"
        options |= {"view": "aware"} if setting.aware and setting.defended else {}
    return AttackSpec(
        name=name,
        attack="autoattack",
        oracle=oracle,
        oracle_options=options,
        every_image=False,
        group="autoattack",
        **setting.ball,
    )


def square(setting: Setting, **changes: Any) -> AttackSpec:
    """Square with its 5,000 queries: it sees the deployed predictor's values and no gradient, so no state matters."""
    spec = AttackSpec(
        name="square",
        attack="square",
        oracle="direct",
        oracle_options={"values": "deployed"},
        every_image=False,
        **setting.ball,
    )
    return replace(spec, **changes)


def has_grid(store: Store | None, setting: Setting) -> bool:
    """Whether a store holds the whole grid, on every image."""
    manifest = store.read_manifest() if store is not None else None
    if store is None or manifest is None or manifest["union"]:
        return False
    return all(spec.name in manifest["attacks"] and store.complete(spec.name) for spec in grid(setting))


def _manifest_attacks(store: Store | None) -> Mapping[str, Any]:
    """What a store holds or is meant to hold already."""
    manifest = None if store is None else store.read_manifest()
    return {} if manifest is None else manifest["attacks"]


def stored_attacks(folder: Path, setting: Setting, label: str | None = None) -> list[AttackSpec]:
    """The kept images of another store, as attacks on this predictor; called by the folder's name if not said.

    Only those that were made against its own predictor: images that it was shown itself have their own source.
    """
    source = Store(folder)
    if source.manifest["union"]:
        raise ValueError(
            f"{folder} was evaluated with --union, where broken images leave: it has no images for a transfer; "
            "evaluate it with --keep-images and without --union into another folder"
        )
    label = source_labels([folder], {})[folder.resolve()] if label is None else label
    configs = source.manifest["attacks"]
    own = [name for name, c in configs.items() if c["attack"] != "stored" and c["group"] != SANITY]
    names = [name for name in own if source.has_images(name)]
    _check_same_images(source, setting.data)
    if not names:
        raise ValueError(f"{folder} keeps no adversarial images: evaluate it with --keep-images or --suite transfer")
    return [
        AttackSpec(
            name=f"from.{label}.{name}",
            attack="stored",
            options={
                "store": str(folder.resolve()),
                "attack": name,
                "hash": configs[name]["hash"],
                "model": source.manifest["model"]["hash"],
            },
            oracle="none",
            group="transfer",
            limit=configs[name]["limit"],
            norm=configs[name]["norm"],
            eps=configs[name]["eps"],
        )
        for name in names
    ]


def _check_same_images(source: Store, own: Mapping[str, Any]) -> None:
    """Images are known by their positions: those of a source must come from the same data, and be enough."""
    other = source.manifest["data"]
    if other["sha256"] == own["sha256"]:
        return
    same_set = other["name"] == own["name"] != "tensors" and other["split"] == own["split"]
    if not same_set or other["images"] < own["images"]:
        raise ValueError(
            f"{source.folder} holds {other['images']} images of {other['name']} ({other['sha256']}), not the "
            f"{own['images']} of {own['name']} ({own['sha256']}) that are evaluated: its attacks do not fit"
        )


def on_base(setting: Setting) -> list[AttackSpec]:
    """Attacks on the undefended model, whose images the defended one is then shown."""
    if not setting.defended:
        return []
    common = {"on": "base", "group": "transfer", **setting.ball}
    deployed = {"values": "deployed"}
    return [
        AttackSpec(
            name="base-apgd-ce",
            attack="apgd",
            options={"loss": "ce"},
            oracle="ready",
            oracle_options=deployed,
            **common,
        ),
        AttackSpec(
            name="base-apgd-dlr",
            attack="apgd",
            options={"loss": "dlr"},
            oracle="ready",
            oracle_options=deployed,
            **common,
        ),
        AttackSpec(name="base-exact", attack="apgd", options={"loss": "ce"}, oracle="exact", **common),
    ]


def _quick(setting: Setting) -> Suite:
    aware = [ready(setting, aware=True)] if setting.aware and setting.defended else []
    return Suite("quick", [ready(setting), *aware])


def _grid(setting: Setting) -> Suite:
    return Suite("grid", grid(setting))


def _autoattack(setting: Setting) -> Suite:
    found = has_grid(setting.store, setting)
    notes = []
    if setting.subject.dynamic is not None and not found:
        notes.append(
            "AutoAttack ran with the ready-made gradient (aa-ready): the store holds no complete grid whose strongest "
            "oracle it could take; run --suite grid into the same folder first for aa-strongest"
        )
    return Suite("autoattack", [autoattack(setting, with_grid=found)], notes)


def _transfer(setting: Setting) -> Suite:
    return Suite("transfer", [*grid(setting), *on_base(setting)], keep_images=True)


def _paper(setting: Setting) -> Suite:
    """All that Tables 1-8 and Figs. 2, 3 and 5 need of this model; docs/evaluate.md says which part feeds which.

    An undefended model is scored beside the entropy reductions around it. Table 3 is of models trained by TRADES:
    their images are kept. Table 5 is of TRADES with random states: only there its settings are scored too, which takes
    longer than all attacks together.
    """
    specs = [ready(setting, diagnostics=setting.subject.dynamic is not None)]
    if setting.subject.dynamic is None:
        return Suite("paper", [*specs, autoattack(setting, with_grid=False)])
    specs += grid(setting)
    pairs = [(i, k) for i, k in TABLE_4 if i <= setting.subject.states]
    for i, k in pairs:
        spec = unrolled(setting, i, k, 0.5)
        specs.append(
            replace(
                spec,
                name=grid_name(i, k, 0.5, attack="apgd"),
                attack="apgd",
                options={"loss": "ce"},
                oracle_options={**spec.oracle_options, "values": "deployed"},
                group="table4",
            )
        )
    specs.append(square(setting, limit=1000, group="table4"))
    specs.append(autoattack(setting, with_grid=True))
    trained = setting.subject.metadata
    trades, random = trained.get("objective") == "trades", trained.get("states") == "random"
    settings = table_5_settings(setting.subject) if trades and random and not setting.defended else {}
    return Suite("paper", specs, keep_images=trades, also={**entropy_variants(setting), **settings})


def _settings(setting: Setting) -> Suite:
    """Table 5 of any model: the grid, scored on entropy reductions of other settings."""
    if setting.subject.dynamic is None:
        raise ValueError("suite settings varies the entropy reduction (T_f, R), which needs a model with dynamics")
    if setting.union:
        raise ValueError("suite settings scores every image on every setting (T_f, R): leave --union away")
    main = {"entropy-paper": entropy_reduced(setting.subject, variant="paper")}
    return Suite("settings", grid(setting), also={**main, **table_5_settings(setting.subject)})


def entropy_variants(setting: Setting) -> dict[str, Callee]:
    """Of an undefended model, the defended ones: oblivious attacks make the same images for all of them."""
    return {} if setting.subject.dynamic is None or setting.defended else two_variants(setting.subject)


SUITES: dict[str, Callable[[Setting], Suite]] = {
    "quick": _quick,
    "grid": _grid,
    "autoattack": _autoattack,
    "transfer": _transfer,
    "paper": _paper,
    "settings": _settings,
}


_OWN = [f.name for f in fields(AttackSpec) if f.name not in ("group",)]


def read_suite(path: Path, setting: Setting) -> Suite:
    """A user's own suite: `attacks`, a list of mappings with the fields of AttackSpec, each with a name.

    eps may be written 8/255; eps and norm are the evaluation's own if not given, and the oracle is the ready-made one
    (direct without dynamics). `include: [grid, ...]` adds whole suites, with the further predictors that they score
    images on. `also: {mine: {every: 4, steps: 5}}` scores them on these entropy reductions around the model instead,
    and `keep_images: true` or `false` decides whatever the included suites say. An unknown key is an error.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"no suite file {path}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a suite: expected a mapping with 'attacks' or 'include' at the top")
    _known(path, content, ["name", "include", "attacks", "keep_images", "also"])
    included = [make_suite(name, replace(setting, sources=())) for name in content.get("include") or []]
    own = [_own_attack(path, entry, setting) for entry in content.get("attacks") or []]
    specs = [spec for suite in included for spec in suite.specs] + own
    if not specs:
        raise ValueError(f"{path} names no attack: give 'attacks' or 'include'")
    keep = bool(content.get("keep_images", any(suite.keep_images for suite in included)))
    notes = list(dict.fromkeys(note for suite in included for note in suite.notes))
    also = {name: other for suite in included for name, other in suite.also.items()}
    if "also" in content:
        if content["also"] and setting.union:
            raise ValueError(f"{path}: also: --union judges the deployed predictor alone: leave one of them away")
        try:
            also = read_also(content["also"] or {}, setting.subject)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return Suite(str(content.get("name", path.stem)), specs, notes, keep, also)


def _own_attack(path: Path, entry: Any, setting: Setting) -> AttackSpec:
    if not isinstance(entry, dict) or "name" not in entry:
        raise ValueError(f"{path}: an attack is a mapping with a name, got {entry!r}")
    _known(path, entry, _OWN)
    values = {**setting.ball, "oracle": "direct" if setting.subject.dynamic is None else "ready", **entry}
    try:
        values["eps"] = float(Fraction(str(values["eps"])))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{path}: eps must be a number or a fraction such as 8/255, got {values['eps']!r}") from None
    try:
        return AttackSpec(**values)
    except TypeError as error:
        raise ValueError(f"{path}: attack {entry['name']}: {error}") from None


def _known(path: Path, content: dict[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise ValueError(f"{path}: unknown key {key!r}; {hint}")
