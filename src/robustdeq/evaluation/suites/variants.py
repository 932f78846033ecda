"""The entropy reductions around one model that attacked images are scored on: its variants, and Table 5's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.suites.subject import Callee, Subject
from robustdeq.threat import number

TABLE_5 = tuple((every, steps) for every in (1, 2, 4, 8) for steps in (1, 5, 10, 20))
"""The paper's (T_f, R)."""
MAIN = (2, 10)
"""Those of its other tables, and the defaults."""
TAKEN = {"deployed": "predictor under evaluation", "base": "undefended model of a defended one"}
"""What every store calls by these names."""


def entropy_reduced(subject: Subject, **settings: Any) -> Callee:
    """The undefended model of a subject behind an entropy reduction, read at the state that the subject deploys.

    It defends within the eps that the model was trained for, whatever the threat; without one within the defaults.
    """
    dynamic, state = subject.dynamic, subject.early_state
    if dynamic is None:
        raise ValueError("the predictor has no dynamics: there is nothing to put an entropy reduction around")
    eps = subject.metadata.get("eps")
    radius = None if eps is None else number(eps, "eps of the checkpoint")
    budget = {} if radius is None else {"radius": radius, "step_size": radius / 4}
    defended = EntropyReduction(dynamic.base, **{**budget, **settings})
    return defended if state is None else EarlyState(defended, state=state)


def two_variants(subject: Subject) -> dict[str, Callee]:
    """The main settings in the paper's and in the released variant, which needs T_f to divide N."""
    variants = ("paper", "released") if subject.states % MAIN[0] == 0 else ("paper",)
    return {f"entropy-{v}": entropy_reduced(subject, variant=v) for v in variants}


def table_5_settings(subject: Subject) -> dict[str, Callee]:
    """The other settings of Table 5 in the paper's variant, entropy-paper-T4-R5; T_f beyond N would do nothing."""
    wanted = [(every, steps) for every, steps in TABLE_5 if every <= subject.states and (every, steps) != MAIN]
    return {
        f"entropy-paper-T{every}-R{steps}": entropy_reduced(subject, variant="paper", every=every, steps=steps)
        for every, steps in wanted
    }


def read_also(content: Any, subject: Subject) -> dict[str, Callee]:
    """`also` of a user's suite: names, each with the settings of an entropy reduction."""
    for name, what in TAKEN.items():
        if isinstance(content, Mapping) and name in content:
            raise ValueError(f"also: {name!r} is the {what}: choose another name")
    if not isinstance(content, Mapping) or not all(isinstance(v, Mapping) for v in content.values()):
        raise ValueError(
            "also: expected names, each with settings of an entropy reduction, such as {mine: {every: 4, steps: 5}}"
        )
    made = {}
    for name, settings in content.items():
        try:
            made[str(name)] = entropy_reduced(subject, **settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"also: {name} cannot be made with {dict(settings)}: {error}") from error
    return made
