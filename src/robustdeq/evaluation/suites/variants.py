"""Entropy reductions around one model that attacked images are scored on: the paper's variants and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.suites.subject import Callee, Subject

TABLE_5 = tuple((every, steps) for every in (1, 2, 4, 8) for steps in (1, 5, 10, 20))
"""The (T_f, R) of the paper's Table 5."""
MAIN = (2, 10)
"""The (T_f, R) of the paper's other tables, and the defaults."""
DEFAULT = "entropy-sign"
"""The name of `EntropyReduction(model)` with the main settings."""
RESERVED = {"deployed": "predictor under evaluation", "base": "undefended model of a defended one"}
"""Names that every store uses for predictors of its own."""


def entropy_reduced(subject: Subject, **settings: Any) -> Callee:
    """The subject's undefended model behind an entropy reduction, read at the state that the subject deploys.

    Its radius is the eps that the model was trained for, whatever the threat; without one, the default.
    """
    dynamic, state = subject.dynamic, subject.early_state
    if dynamic is None:
        raise ValueError("the predictor has no dynamics: there is nothing to put an entropy reduction around")
    eps = subject.eps
    budget = {} if eps is None else {"radius": eps, "step_size": eps / 4}
    defended = EntropyReduction(dynamic.base, **{**budget, **settings})
    return defended if state is None else EarlyState(defended, state=state)


def entropy_variants(subject: Subject) -> dict[str, Callee]:
    """The main settings in the paper's flow along the sign and in the released code's, which needs T_f to divide N.

    The name entropy-paper, which earlier stores have, stays that of Eq. 8 as printed, along the gradient.
    """
    main = {DEFAULT: entropy_reduced(subject)}
    divides = subject.states % MAIN[0] == 0
    return {**main, "entropy-released": entropy_reduced(subject, variant="released")} if divides else main


def table_5_settings(subject: Subject) -> dict[str, Callee]:
    """Table 5's other settings, such as entropy-sign-T4-R5; T_f > N would do nothing."""
    return {
        f"{DEFAULT}-T{every}-R{steps}": entropy_reduced(subject, every=every, steps=steps)
        for every, steps in TABLE_5
        if every <= subject.states and (every, steps) != MAIN
    }


def read_also(content: Any, subject: Subject) -> dict[str, Callee]:
    """Predictors from the key `also` of a suite file: names, each with the settings of an entropy reduction."""
    if not isinstance(content, Mapping) or not all(isinstance(v, Mapping) for v in content.values()):
        raise ValueError(
            "also: expected names, each with settings of an entropy reduction, such as {mine: {every: 4, steps: 5}}"
        )
    made = {}
    for name, settings in content.items():
        if name in RESERVED:
            raise ValueError(f"also: {name!r} is the {RESERVED[name]}: choose another name")
        try:
            made[str(name)] = entropy_reduced(subject, **settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"also: {name} cannot be made with {dict(settings)}: {error}") from error
    return made
