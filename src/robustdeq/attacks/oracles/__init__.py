"""What an attacker sees; the one part of `attacks` that knows models."""

from robustdeq.attacks.oracles.oracle import Direct, Oracle, SurrogateAlone
from robustdeq.attacks.oracles.stacked import StackedStates
from robustdeq.attacks.oracles.states import Estimate, Exact, StateOracle, UnrolledState, WatchedStates

__all__ = [
    "Direct",
    "Estimate",
    "Exact",
    "Oracle",
    "StackedStates",
    "StateOracle",
    "SurrogateAlone",
    "UnrolledState",
    "WatchedStates",
]
