"""What is looked at: a model, an image, an attack, a defence, a state. One list of fields for links and flags."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, urlencode

from robustdeq.host.references import is_reference
from robustdeq.host.suggestions import did_you_mean

Attack = Literal["none", "pgd", "apgd"]
Surrogate = Literal["ready", "unrolled", "carried", "exact", "watched", "direct"]
View = Literal["oblivious", "aware", "bpda"]
OWN = ("attack", "defence")
"""Fields that may name code of one's own, as package.module:Class; NAME.OPTION is an option of it."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Everything that decides what the explorer shows; fields that are left out have their defaults."""

    model: str
    """A checkpoint folder, a shipped checkpoint's name, or package.module:function."""
    image: str = ""
    """test:K (the K-th test image, from 0), photo:NAME, data:image/png;base64,..., or a file; "" for the first."""
    label: int | None = None
    """The true class; by default the test set's, or what the deployed predictor says of the clean image."""
    attack: Attack | str = "pgd"
    attack_own: Mapping[str, str] = field(default_factory=dict)
    """Options of an attack of one's own."""
    oracle: Surrogate = "ready"
    oracle_state: int = 3
    oracle_steps: int = 5
    oracle_damping: float = 0.5
    oracle_view: View = "oblivious"
    eps: str = ""
    """Radius, such as 8/255; "" for what the checkpoint was trained for."""
    steps: int = 10
    seed: int = 0
    defence: Literal["none", "entropy"] | str = "entropy"
    defence_own: Mapping[str, str] = field(default_factory=dict)
    defence_variant: Literal["paper", "released"] = "paper"
    defence_direction: Literal["gradient", "sign"] = "sign"
    defence_resolve: bool | None = None
    defence_history: Literal["kept", "restarted"] | None = None
    defence_handed_on: Literal["iterate", "lowest"] | None = None
    defence_final_input: Literal["purified", "received"] | None = None
    """These four are as the variant has them unless they are given."""
    defence_every: int = 2
    defence_steps: int = 10
    state: str = ""
    """The deployed state, 1..N or final; "" for 8, or the solver's last."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Case).items():
            value = getattr(self, name)
            literal = next((part for part in (hint, *get_args(hint)) if get_origin(part) is Literal), None)
            choices = get_args(literal)
            known = choices if literal is hint or name in OWN else (*choices, None)
            if choices and value not in known and not (name in OWN and is_reference(value)):
                own = " or package.module:Class" if name in OWN else ""
                raise ValueError(f"{name} must be one of {', '.join(choices)}{own}, got {value!r}")
        for name in OWN:
            if (options := getattr(self, f"{name}_own")) and not is_reference(getattr(self, name)):
                raise ValueError(f"{name} {getattr(self, name)} has no option {next(iter(options))!r} of one's own")
        for name, low, high in (("steps", 1, 1000), ("oracle_steps", 1, 100), ("defence_steps", 0, 1000)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must be {low} to {high}, got {getattr(self, name)}")

    @classmethod
    def of(cls, values: dict[str, Any]) -> Case:
        """The case that these fields name; values may be text, as in a link."""
        kinds = get_type_hints(cls)
        typed: dict[str, Any] = {}
        for name, value in values.items():
            kind, dot, option = name.partition(".")
            if dot and kind in OWN and option:
                typed.setdefault(f"{kind}_own", {})[option] = str(value)
            elif name not in kinds:
                raise ValueError(
                    f"a case has no {name!r}; {did_you_mean(name, [k for k in kinds if k[-4:] != '_own'])}"
                )
            else:
                typed[name] = value if name.endswith("_own") else _typed(name, kinds[name], value)
        return cls(**typed)

    @classmethod
    def of_query(cls, query: str) -> Case:
        """The case of a link."""
        return cls.of(dict(parse_qsl(query)))

    def changed(self) -> dict[str, Any]:
        """The fields that differ from their defaults, the model first."""
        found: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name.endswith("_own"):
                found |= {f"{f.name.removesuffix('_own')}.{option}": text for option, text in value.items()}
            elif value not in (f.default, MISSING):
                found[f.name] = value
        return found

    @property
    def own(self) -> list[str]:
        """Which of `OWN` name code of one's own."""
        return [name for name in OWN if is_reference(getattr(self, name))]

    @property
    def query(self) -> str:
        """The case as the end of a link."""
        return urlencode({name: _shown(value) for name, value in self.changed().items()})

    def command(self, *words: str) -> str:
        """The command line that shows it."""
        given = self.changed()
        flags = [part for name, value in given.items() if name != "model" for part in (flag(name), _shown(value))]
        return shlex.join(["robustdeq", "explore", given["model"], *flags, *words])


def flag(name: str) -> str:
    """The flag of `robustdeq explore` that sets a field."""
    return "--" + name.replace("defence_", "defence.").replace("_", "-")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def called(name: str) -> str:
    """A choice of an attack or a defence in words."""
    known = {"pgd": "PGD", "apgd": "APGD", "entropy": "entropy reduction"}
    return known.get(name, name.rpartition(":")[2])


def _typed(name: str, hint: Any, value: Any) -> Any:
    kind = next((kind for kind in (int, float) if hint is kind or kind in get_args(hint)), str)
    if bool in get_args(hint):
        known = {"true": True, "false": False, "none": None, "": None}
        if str(value).lower() not in known:
            raise ValueError(f"{name} must be true or false, got {value!r}")
        return known[str(value).lower()]
    try:
        return None if value is None else kind(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {'a whole number' if kind is int else 'a number'}, got {value!r}") from None
