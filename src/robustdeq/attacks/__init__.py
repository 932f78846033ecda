"""Attacks, and what they see of a predictor."""

from robustdeq.attacks.apgd import APGD
from robustdeq.attacks.base import Attack, AttackResult
from robustdeq.attacks.oracle import Direct, Oracle
from robustdeq.attacks.pgd import PGD

__all__ = ["APGD", "PGD", "Attack", "AttackResult", "Direct", "Oracle"]
