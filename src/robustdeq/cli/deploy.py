"""What a command runs: a checkpoint's model, behind the defence and read at the state that were asked for."""

from __future__ import annotations

from typing import Any

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import DynamicPredictor


def defence_settings(defence: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """What the flags --defence.* say, None without a defence; a setting of a defence that is not there is a mistake."""
    if defence == "entropy":
        return dict(given)
    if given:
        flags = " and ".join(f"--defence.{name}" for name in given)
        raise ValueError(f"without a defence {flags} would change nothing: add --defence entropy, or drop {flags}")
    return None


def deploy(predictor: Any, *, defence: dict[str, Any] | None, state: str | None) -> Any:
    """The predictor with a defence of these settings (none: None), read at a state (1..N or "final").

    Without a state asked for, one that is defended or reads an early state already stays as it is; others read z^[8],
    or the solver's last if it has fewer.
    """
    if not isinstance(predictor, DynamicPredictor):
        if defence is not None or state not in (None, "final"):
            raise ValueError(
                f"a {type(predictor).__name__} has no dynamics and no states: --defence entropy and --state are for "
                "DEQ models"
            )
        return predictor
    early, defended = Subject(predictor).early_state, predictor.defended
    steps = predictor.base.solver.max_steps
    if defence is not None:
        predictor = EntropyReduction(predictor, **defence)
    if state == "final":
        if early is not None:
            raise ValueError(f"the predictor reads state {early} by itself: it has no final state to deploy")
        return predictor
    if state is None:
        if early is not None or defended:
            return predictor
        return EarlyState(predictor, state=min(8, steps))
    if not state.isdigit():
        raise ValueError(f"--state must be a number or 'final', got {state!r}")
    if not 1 <= int(state) <= steps:
        raise ValueError(f"the model has states 1 to {steps}, got --state {state}")
    return EarlyState(predictor, state=int(state))
