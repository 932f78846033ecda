"""Every attack, with small budgets; a new one joins with one line."""

import pytest

from robustdeq.attacks import APGD, FABT, PGD, AutoAttack, Square
from robustdeq.threat import L2, Linf

ATTACKS = [
    PGD(Linf(0.1), steps=4, step_size=0.03),
    PGD(Linf(0.1), steps=3, step_size=0.05, loss="margin", restarts=3),
    PGD(L2(0.5), steps=4, step_size=0.2, loss="dlr"),
    PGD(Linf(0.1), steps=4, step_size=0.03, loss="kl"),
    PGD(Linf(0.1), steps=4, step_size=0.03, random_start=False),
    APGD(Linf(0.1), n_iter=5),
    APGD(L2(0.5), n_iter=4, loss="dlr", restarts=2),
    APGD(Linf(0.1), n_iter=4, loss="dlr_targeted", targets=2),
    APGD(Linf(0.1), n_iter=5, steer="surrogate"),
    FABT(Linf(0.1), n_iter=4, targets=2),
    FABT(L2(0.5), n_iter=4, targets=1),
    Square(Linf(0.1), n_queries=15),
    Square(L2(0.8), n_queries=15),
    AutoAttack(Linf(0.04), n_iter=3, targets=1, n_queries=8),
    AutoAttack(Linf(0.04), n_iter=3, targets=1, n_queries=8, steer="surrogate"),
]

every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=repr)
every_kind = pytest.mark.parametrize("attack", [ATTACKS[i] for i in (0, 1, 5, 7, 9, 11, 13)], ids=repr)
every_start = pytest.mark.parametrize("attack", [a for a in ATTACKS if a.takes_start], ids=repr)
