"""Attacks, and the oracles through which they see a predictor."""

from robustdeq.attacks.apgd import APGD
from robustdeq.attacks.base import Attack, AttackResult
from robustdeq.attacks.external import FABT, AutoAttack, Square
from robustdeq.attacks.honesty import GradientHonesty, gradient_honesty
from robustdeq.attacks.oracles import Direct, Estimate, Exact, Oracle, UnrolledState, WatchedStates
from robustdeq.attacks.pgd import PGD
from robustdeq.attacks.task import Task

__all__ = [
    "APGD",
    "FABT",
    "PGD",
    "Attack",
    "AttackResult",
    "AutoAttack",
    "Direct",
    "Estimate",
    "Exact",
    "GradientHonesty",
    "Oracle",
    "Square",
    "Task",
    "UnrolledState",
    "WatchedStates",
    "gradient_honesty",
]
