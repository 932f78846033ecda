"""Adversarial training."""

from robustdeq.training.config import TrainConfig
from robustdeq.training.draws import Draws
from robustdeq.training.inner import Carried, Cold, InnerPolicy
from robustdeq.training.objectives import PGDAT, TRADES, Adversarial, Losses, Objective, Penalty, Standard
from robustdeq.training.states import Depth, Final, RandomState, StatePolicy

__all__ = [
    "PGDAT",
    "TRADES",
    "Adversarial",
    "Carried",
    "Cold",
    "Depth",
    "Draws",
    "Final",
    "InnerPolicy",
    "Losses",
    "Objective",
    "Penalty",
    "RandomState",
    "Standard",
    "StatePolicy",
    "TrainConfig",
]
