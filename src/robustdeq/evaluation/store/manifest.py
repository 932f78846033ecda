"""What a store contains: manifest.json as dataclasses, with its only reader and its only writer.

Everything that knows earlier versions of the format is in `Manifest.from_json` and the functions it calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from robustdeq.defences.switches import VARIANTS
from robustdeq.evaluation.store.attack_spec import NORMS, AttackSpec
from robustdeq.evaluation.store.typed import checked, hints, read_record
from robustdeq.models.registry import preset_of
from robustdeq.threat import Threat

FORMAT = "robustdeq-evaluation"
VERSION = 1
YOUNGER = ("code", "survivors")
"""Fields of an attack that stores of earlier versions lack; left out where they are not set."""

_FIRST_DIRECTIONS = {"paper": "gradient", "released": "sign"}
"""What the variants did in stores that do not say it: the first ones did not record switches."""

Answers = list[list[float | None]]
"""Logits of the deployed predictor on the first images; None where one is not finite."""


class ManifestError(ValueError):
    """A manifest that this version cannot read."""


@dataclass(frozen=True, kw_only=True)
class DataRecord:
    """The images of an evaluation."""

    name: str
    """The data set, or "tensors" for images that the caller passed in."""
    split: str
    images: int
    limit: int | None
    """Number of images that were asked for; None for all."""
    sha256: str
    """First 12 hex digits over pixels and labels."""


AS_PRINTED = "paper along the gradient, as printed"
"""Eq. 8 word for word."""


@dataclass(frozen=True, kw_only=True)
class EntropyRecord:
    """Settings of an entropy reduction inside a predictor."""

    every: int
    """T_f: solver steps between interventions."""
    steps: int
    """R: inner iterations of an intervention."""
    variant: str
    switches: Mapping[str, Any]
    config: Mapping[str, Any]
    """All settings, without the predictor inside."""

    @property
    def changed_switches(self) -> dict[str, Any]:
        """The switches that differ from those of the variant."""
        usual = asdict(VARIANTS[self.variant])
        return {name: value for name, value in self.switches.items() if value != usual.get(name)}

    @property
    def is_default(self) -> bool:
        """Whether variant and switches are those of `EntropyReduction(model)`."""
        return self.variant == "paper" and not self.changed_switches

    @property
    def words(self) -> str:
        """The variant, its direction and what differs besides: "paper along the sign, with resolve false"."""
        along = {
            ("paper", "gradient"): AS_PRINTED,
            ("released", "sign"): "released",
        }.get((self.variant, self.switches["direction"]), f"{self.variant} along the {self.switches['direction']}")
        changed = [f"{k} {str(v).lower()}" for k, v in self.changed_switches.items() if k != "direction"]
        return f"{along}, with {', '.join(changed)}" if changed else along


@dataclass(frozen=True, kw_only=True)
class PredictorRecord:
    """A predictor that every adversarial image was scored on."""

    deployed_state: str
    """Name of the state that predictions are read from: "1".."N" or "final"."""
    states: list[str]
    """Names of all states."""
    config: Any
    """Kind and settings of the predictor and of what it wraps (key "predictor"); the name of a plain function."""
    weights_sha256: str | None = None

    @cached_property
    def layers(self) -> dict[str, dict[str, Any]]:
        """Settings of each wrapper and of the model inside, by their kinds."""
        found: dict[str, dict[str, Any]] = {}
        config = self.config
        while isinstance(config, dict):
            found[config["kind"]] = config
            config = config.get("predictor")
        return found

    @property
    def own_defences(self) -> list[str]:
        """Names (package.module:name) of the user's own defences among the wrappers."""
        return [str(config["reference"]) for config in self.layers.values() if "reference" in config]

    @property
    def entropy(self) -> EntropyRecord | None:
        """The entropy reduction among the wrappers; None without one."""
        config = self.layers.get("EntropyReduction")
        if config is None:
            return None
        return EntropyRecord(
            every=config["every"],
            steps=config["descent"]["steps"],
            variant=config["variant"],
            switches={"direction": _FIRST_DIRECTIONS[config["variant"]], **config.get("switches", {})},
            config={key: value for key, value in config.items() if key != "predictor"},
        )


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """The predictor under evaluation, and the model inside it."""

    name: str
    """Name that the user gave: a checkpoint, a class, a function."""
    kind: str
    """Registered name of the model, such as mdeq-tiny."""
    hash: str
    """First 12 hex digits of the SHA-256 over weights and settings."""
    metadata: dict[str, Any]
    """What the checkpoint says about the model: data set, eps, training."""
    config: Any
    weights_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class ResolvedOracle:
    """The oracle of the grid that an attack with oracle "strongest" was run with."""

    attack_of_grid: str
    oracle: str
    oracle_options: dict[str, Any]

    def __post_init__(self) -> None:
        if self.oracle != "unrolled":  # a store from elsewhere must not name code to import
            raise ValueError(f"resolved: the oracle of the grid is 'unrolled', got {self.oracle!r}")


@dataclass(frozen=True, kw_only=True)
class AttackRecord:
    """An attack of the store."""

    spec: AttackSpec
    hash: str
    """`AttackSpec.hash` of the version that wrote it."""
    resolved: ResolvedOracle | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> AttackRecord:
        """Read a record; values that follow from the attack itself are not read."""
        resolved = content.get("resolved")
        return cls(
            spec=AttackSpec(
                **{f.name: content[f.name] for f in fields(AttackSpec) if f.name not in YOUNGER or f.name in content}
            ),
            hash=content["hash"],
            resolved=None if resolved is None else read_record(ResolvedOracle, resolved),
        )

    def as_json(self) -> dict[str, Any]:
        """The record as JSON, with what follows from the attack itself: cost, and whether it may be called AA."""
        spec = self.spec
        content = {**asdict(spec), "hash": self.hash, "cost": spec.cost(), "is_aa": spec.is_standard_autoattack}
        for name in YOUNGER:
            if not getattr(spec, name):
                del content[name]
        return content if self.resolved is None else {**content, "resolved": asdict(self.resolved)}


@dataclass(frozen=True, kw_only=True)
class SuiteRequest:
    """How a suite was asked for."""

    suite: str
    """Its name or file."""
    aware: bool = False
    keep_images: bool = False
    command: str | None = None
    """The command line that ran it; None if it was called from Python."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """When and with what a run was made."""

    started: str
    """ISO 8601, UTC."""
    batch_size: int
    versions: dict[str, Any]
    commit: str | None
    hardware: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What was evaluated, on which images, by which attacks, with which settings."""

    model: ModelRecord
    predictors: dict[str, PredictorRecord]
    """The first is "deployed"."""
    dynamic: bool
    """Whether the predictor has states that can be looked into."""
    data: DataRecord
    threat: Threat
    seed: int
    dtype: str
    batch_size: int
    """Batch size of the first run; `runs` holds each run's."""
    shard_size: int
    union: bool
    all_states: bool
    """Whether every state was scored, not only the deployed one."""
    answers: Answers | None = field(default_factory=list)
    """Logits by which the predictor is recognised on resume; None if it is random, empty in stores of earlier
    versions."""
    attacks: dict[str, AttackRecord]
    suites: list[str]
    asked: list[SuiteRequest]
    notes: list[str]
    runs: list[RunRecord]

    def as_json(self) -> dict[str, Any]:
        """The content of manifest.json."""
        content = {
            "format": FORMAT,
            "format_version": VERSION,
            **asdict(self),
            "threat": {"norm": type(self.threat).__name__, "eps": self.threat.eps},
            "attacks": {name: record.as_json() for name, record in self.attacks.items()},
        }
        plain: dict[str, Any] = json.loads(json.dumps(content))  # tuples become lists, as they are when read again
        return plain

    @classmethod
    def from_json(cls, content: Any, where: str) -> Manifest:
        """Read the parsed content of the manifest.json at `where`, of this version or an earlier one.

        Raises:
            ManifestError: The content is something else.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ManifestError(
                f"{where} is not the manifest of a robustdeq store: its format is not {FORMAT}; restore it, or leave "
                "its folder out"
            )
        if content.get("format_version") != VERSION:
            raise ManifestError(
                f"{where} has format version {content.get('format_version')}, this robustdeq reads {VERSION}: "
                "upgrade robustdeq"
            )
        try:
            # earlier versions stored only the names of suites
            asked = content.get("asked") or [{"suite": name} for name in content["suites"]]
            records: dict[str, Any] = {
                "model": read_record(ModelRecord, {"kind": _kind(content["model"]), **content["model"]}),
                "predictors": {name: read_record(PredictorRecord, p) for name, p in content["predictors"].items()},
                "data": read_record(DataRecord, content["data"]),
                "threat": NORMS[content["threat"]["norm"]](content["threat"]["eps"]),
                "attacks": {name: AttackRecord.from_json(record) for name, record in content["attacks"].items()},
                "asked": [read_record(SuiteRequest, entry) for entry in asked],
                "runs": [
                    read_record(RunRecord, {"batch_size": content["batch_size"], **run}) for run in content["runs"]
                ],
                "answers": content.get("answers", []),
            }
            plain = [f.name for f in fields(cls) if f.name not in records]
            found = cls(**{name: checked(content[name], hints(cls)[name], name) for name in plain}, **records)
            found.check()
        except KeyError as error:
            raise ManifestError(f"{where} is incomplete: it has no {error}; restore it") from None
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ManifestError(f"{where} is damaged: {error}; restore it") from None
        return found

    def check(self) -> None:
        """Raise a ValueError or KeyError unless the parts fit together."""
        if next(iter(self.predictors)) != "deployed":
            raise ValueError(f"the first predictor is {next(iter(self.predictors))!r}, not 'deployed'")
        for name, predictor in self.predictors.items():
            if predictor.deployed_state not in predictor.states:
                raise ValueError(f"{name} predicts from state {predictor.deployed_state!r} of {predictor.states!r}")
            _ = predictor.layers, predictor.entropy
        for name, attack in self.attacks.items():
            if attack.spec.name != name:
                raise ValueError(f"the attack {attack.spec.name!r} stands under the name {name!r}")
        if min(self.data.images, self.shard_size, self.batch_size) < 1:
            raise ValueError("images, shard_size and batch_size are at least 1")


def _kind(model: Mapping[str, Any]) -> str:
    """Registered name of the model; earlier versions stored its options only."""
    config = model["config"]
    while isinstance(config, dict) and "predictor" in config:
        config = config["predictor"]
    if not isinstance(config, dict) or "architecture" not in config:
        return str(model["name"])
    return preset_of(config["architecture"], config.get("options", {}))
