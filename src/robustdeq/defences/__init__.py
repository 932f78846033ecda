"""Test-time defences: predictors around predictors."""

from robustdeq.defences.early import EarlyState
from robustdeq.defences.entropy import EntropyReduction
from robustdeq.defences.input_defence import InputDefence
from robustdeq.defences.intervention import Intervention
from robustdeq.defences.readout import Readings, ReadoutDefence
from robustdeq.defences.switches import Switches
from robustdeq.models.predictor import Defence

__all__ = [
    "Defence",
    "EarlyState",
    "EntropyReduction",
    "InputDefence",
    "Intervention",
    "Readings",
    "ReadoutDefence",
    "Switches",
]
