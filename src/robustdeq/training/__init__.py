"""Adversarial training."""

from robustdeq.training.config import TrainConfig
from robustdeq.training.draws import Draws
from robustdeq.training.objectives import PGDAT, TRADES, Losses, Objective, Penalty, Standard
from robustdeq.training.states import Depth, Final, RandomState, StatePolicy

__all__ = [
    "PGDAT",
    "TRADES",
    "Depth",
    "Draws",
    "Final",
    "Losses",
    "Objective",
    "Penalty",
    "RandomState",
    "Standard",
    "StatePolicy",
    "TrainConfig",
]
