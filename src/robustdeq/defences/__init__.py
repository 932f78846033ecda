"""Test-time defences: predictors around predictors."""

from robustdeq.defences.early import EarlyState
from robustdeq.defences.entropy import EntropyReduction
from robustdeq.defences.switches import Switches

__all__ = ["EarlyState", "EntropyReduction", "Switches"]
