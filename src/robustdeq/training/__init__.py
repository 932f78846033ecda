"""Adversarial training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustdeq.training.config import TrainConfig
    from robustdeq.training.draws import Draws
    from robustdeq.training.inner import Carried, Cold, InnerPolicy
    from robustdeq.training.objectives import PGDAT, TRADES, Adversarial, Attacked, Losses, Objective, Standard
    from robustdeq.training.states import Depth, Final, RandomState, StatePolicy
else:
    from robustdeq.host.lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "PGDAT",
    "TRADES",
    "Adversarial",
    "Attacked",
    "Carried",
    "Cold",
    "Depth",
    "Draws",
    "Final",
    "InnerPolicy",
    "Losses",
    "Objective",
    "RandomState",
    "Standard",
    "StatePolicy",
    "TrainConfig",
]
