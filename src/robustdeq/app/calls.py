"""Attacks, oracles and defences as calls: one description makes the object and writes the Python that makes it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import robustdeq
from robustdeq.app.case import Case
from robustdeq.defences import EarlyState
from robustdeq.host.options import checked_options
from robustdeq.host.references import blaming, is_reference, resolve


@dataclass(frozen=True)
class Call:
    """`rd.path(*args, **options)`; arguments that are names stand for variables of the script.

    A path of the form package.module:name is code of one's own.
    """

    path: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    def make(self, **variables: Any) -> Any:
        """Makes the call on robustdeq and returns its result; names stand for the variables given."""

        def value(given: Any) -> Any:
            if isinstance(given, Call):
                return given.make(**variables)
            return variables[given.name] if isinstance(given, Name) else given

        options = {name: value(given) for name, given in self.options.items()}
        if not is_reference(self.path):
            return attrgetter(self.path)(robustdeq)(*map(value, self.args), **options)
        factory, args = resolve(self.path), [*map(value, self.args)]
        with blaming(self.path, "it fails"):
            return factory(*args, **options)

    def __str__(self) -> str:
        """The call as Python source, with robustdeq imported as rd."""
        arguments = [*map(_written, self.args), *(f"{name}={_written(value)}" for name, value in self.options.items())]
        path = self.path.replace(":", ".") if is_reference(self.path) else f"rd.{self.path}"
        return f"{path}({', '.join(arguments)})"


@dataclass(frozen=True)
class Name:
    """A variable of the script."""

    name: str


def call(path: str, *args: Any, **options: Any) -> Call:
    """`rd.path(*args, **options)`."""
    return Call(path, args, options)


def attack_of(case: Case, eps: float) -> Call:
    """The attack of a case, at a radius."""
    threat = call("Linf", eps)
    if "attack" in case.own:
        return call(case.attack, threat, seed=case.seed, **_options(case, "attack"))
    if case.attack == "apgd":
        return call("APGD", threat, n_iter=case.steps, seed=case.seed)
    loss = {"loss": "confident"} if case.oracle == "watched" else {}
    return call("PGD", threat, steps=case.steps, step_size=eps / 4, seed=case.seed, **loss)


def oracle_of(case: Case, dynamic: bool) -> Call:
    """What the attacker sees of `deployed`; without dynamics there is only its own gradient."""
    deployed, view = Name("deployed"), case.oracle_view
    seen = {} if view == "oblivious" else {"view": view}
    match case.oracle if dynamic else "direct":
        case "ready":
            return call("oracles.Estimate", deployed, gradient=call("Phantom", steps=9, damping=0.5), **seen)
        case "unrolled" if view == "bpda":
            policy = call("Unrolled", steps=case.oracle_steps, damping=case.oracle_damping)
            return call("oracles.Estimate", deployed, gradient=policy, state=case.oracle_state, **seen)
        case "unrolled":
            chosen = {"state": case.oracle_state, "steps": case.oracle_steps, "damping": case.oracle_damping}
            return call("UnrolledState", deployed, **chosen, **({"aware": True} if view == "aware" else {}))
        case "carried":
            return call("oracles.CarriedEstimate", deployed, **seen)
        case "exact":
            options: dict[str, dict[str, Any]] = {
                "oblivious": {"oblivious": True},
                "aware": {},
                "bpda": {"smoothing": None},
            }
            return call("oracles.Exact", deployed, **options[view])
        case "watched":
            return call("oracles.WatchedStates", deployed)
        case _:
            return call("oracles.Direct", deployed)


def deployed_of(deployed: Any, plain: Any, model: Any, case: Case, eps: float) -> Call | Name:
    """How `deploy` has wrapped a model; `plain` is the model without defence, read at the same state."""
    undefended = Name("model") if plain is model else call("EarlyState", Name("model"), state=plain.state)
    if deployed is plain:
        return undefended
    early = isinstance(deployed, EarlyState)
    if "defence" in case.own:
        options = _options(case, "defence")
        defended = call(case.defence, Name("model") if early else undefended, **options)
    else:
        settings = {"every": case.defence_every, "steps": case.defence_steps, "step_size": eps / 4, "radius": eps}
        names = ("variant", "direction", "resolve", "history", "handed_on", "final_input")
        chosen = {name: value for name in names if (value := getattr(case, f"defence_{name}")) is not None}
        defended = call("EntropyReduction", Name("model"), **settings, **chosen)
    return call("EarlyState", defended, state=deployed.state) if early else defended


def _options(case: Case, name: str) -> dict[str, Any]:
    """The options of an attack or a defence of one's own, as its signature types them."""
    reference = getattr(case, name)
    given = _given(name, _signature(reference))
    return checked_options(f"--{name} {reference}", resolve(reference), getattr(case, f"{name}_own"), given)


def options_of(name: str, reference: str) -> list[tuple[str, str]]:
    """The options that an attack or a defence of one's own has, and their defaults; "" for none."""
    found = _signature(reference)
    return [
        (option, "" if p.default is p.empty else _written(p.default))
        for option, p in found.items()
        if option not in _given(name, found) and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]


def _signature(reference: str) -> Mapping[str, inspect.Parameter]:
    factory = resolve(reference)
    if not callable(factory):
        raise ValueError(f"{reference} is a {type(factory).__name__}; expected a class")
    return inspect.signature(factory).parameters


def _given(name: str, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters that are no options: a defence is made around a predictor, an attack of a threat and a seed."""
    return ("threat", "seed") if name == "attack" else (*parameters,)[:1]


def _written(value: Any) -> str:
    if isinstance(value, Name):
        return value.name
    if isinstance(value, float) and value * 255 == round(value * 255) and 0 < value < 1:
        return f"{round(value * 255)} / 255"
    return str(value) if isinstance(value, Call) else repr(value)
