"""The predictor as it is deployed: behind --defence, read at --state."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

from robustdeq.cli.arguments.defence_flags import DefenceFlags
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.host import references
from robustdeq.host.options import checked_options
from robustdeq.host.references import blaming, is_reference
from robustdeq.host.suggestions import did_you_mean
from robustdeq.models.predictor import DynamicPredictor


@dataclass(frozen=True)
class OwnDefence:
    """A defence of a user's own, and its options."""

    reference: str
    options: dict[str, Any]

    def around(self, predictor: Any) -> Any:
        """The predictor that the class or function makes."""
        factory = references.resolve(self.reference)
        if not callable(factory):
            raise ValueError(f"--defence {self.reference} is a {type(factory).__name__}; expected a class")
        inner = next(iter(inspect.signature(factory).parameters), "")
        options = checked_options(f"--defence {self.reference}", factory, self.options, (inner,))
        with blaming(f"--defence {self.reference}", "it fails"):
            defended = factory(predictor, **options)
        if not callable(defended):
            raise ValueError(
                f"--defence {self.reference} made a {type(defended).__name__}; expected a predictor, from pixels to "
                "logits, such as a robustdeq.InputDefence"
            )
        if not isinstance(defended, nn.Module):
            return defended
        # as settings of the module, these two are part of what a store knows its predictor by
        vars(defended)["reference"] = self.reference
        files = references.sources(self.reference)
        vars(defended)["source"] = ", ".join(f"{file} {sha}" for file, sha in files.items())
        if not hasattr(defended, "metadata"):
            vars(defended)["metadata"] = getattr(predictor, "metadata", {})
        return defended.eval()

    @property
    def along_the_dynamics(self) -> bool:
        """Whether it is a defence that an `EarlyState` may stand around."""
        factory = references.resolve(self.reference)
        return isinstance(factory, type) and issubclass(factory, DynamicPredictor)


def defence_settings(flags: DefenceFlags, eps: float | None) -> dict[str, Any] | OwnDefence | None:
    """The settings of --defence entropy: the flags --defence.* that are given, radius eps and step size eps / 4.

    Without a known eps, radius and step size have their defaults. A defence of one's own is given the flags alone.
    Without a defence there are no settings (None), and such flags are a mistake.
    """
    given: dict[str, Any] = {name.removeprefix("defence_"): value for name, value in flags.items()}
    defence = given.pop("defence", "none")
    given = given.pop("own", given)
    if is_reference(defence):
        return OwnDefence(defence, given)
    if defence == "entropy":
        return given if eps is None else {**given, "radius": eps, "step_size": eps / 4}
    if defence != "none":
        hint = did_you_mean(defence, ("none", "entropy"), "one of your own is package.module:Class")
        raise ValueError(f"--defence: expected none, entropy or package.module:Class, got {defence}; {hint}")
    if given:
        names = " and ".join(f"--defence.{name}" for name in given)
        raise ValueError(f"without a defence {names} would change nothing: add --defence entropy, or drop {names}")
    return None


def deployed(predictor: Any, flags: DefenceFlags, eps: float | None, state: str | None) -> Any:
    """The predictor behind the defence of these flags, within a budget, read at a state; see `deploy`."""
    return deploy(predictor, defence=defence_settings(flags, eps), state=state)


def deploy(predictor: Any, *, defence: dict[str, Any] | OwnDefence | None, state: str | None) -> Any:
    """The predictor behind a defence with these settings (None: no defence), read at a state (1..N or "final").

    The state is read outside a defence along the dynamics, and inside any other.

    Without a state, a predictor that is defended or reads an early state already stays as it is. Others are read at
    z^[8], or at the solver's last state if it has fewer.
    """
    if isinstance(defence, OwnDefence) and not (defence.along_the_dynamics and isinstance(predictor, DynamicPredictor)):
        return defence.around(deploy(predictor, defence=None, state=state))
    if not isinstance(predictor, DynamicPredictor):
        if defence is not None or state not in (None, "final"):
            raise ValueError(
                f"a {type(predictor).__name__} has no dynamics and no states: --defence entropy and --state are for "
                "DEQ models"
            )
        return predictor
    early, defended = Subject(predictor).early_state, predictor.defended
    steps = predictor.base.solver.max_steps
    if isinstance(defence, OwnDefence):
        predictor = defence.around(predictor)
    elif defence is not None:
        predictor = EntropyReduction(predictor, **defence)
    if state == "final":
        if early is not None:
            raise ValueError(f"the predictor reads state {early} by itself: it has no final state to deploy")
        return predictor
    if state is None:
        return predictor if early is not None or defended else EarlyState(predictor, state=min(8, steps))
    if not state.removeprefix("-").isdecimal():
        raise ValueError(f"--state must be a number or 'final', got {state!r}")
    if state not in map(str, range(1, steps + 1)):
        raise ValueError(f"the model has states 1 to {steps}, got --state {state:.20}")
    return EarlyState(predictor, state=int(state))
