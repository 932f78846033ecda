"""Threat models (how far an attacker may move an image), budgets and losses."""

from robustdeq.threat.balls import L2, Linf, Threat
from robustdeq.threat.budget import Budget, number
from robustdeq.threat.losses import confident, cross_entropy, dlr, dlr_targeted, kl, margin

__all__ = [
    "L2",
    "Budget",
    "Linf",
    "Threat",
    "confident",
    "cross_entropy",
    "dlr",
    "dlr_targeted",
    "kl",
    "margin",
    "number",
]
