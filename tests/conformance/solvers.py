"""Every solver, by name. A new solver joins all solver tests with one line here."""

from functools import partial

import pytest

from robustdeq import Anderson, Broyden, Picard

SOLVERS = {
    "broyden": Broyden,
    "anderson": Anderson,
    "anderson-short": partial(Anderson, memory=2, mixing=0.8),
    "picard": Picard,
    "picard-damped": partial(Picard, damping=0.7),
}

every_solver = pytest.mark.parametrize("make_solver", SOLVERS.values(), ids=SOLVERS.keys())
"""Gives a test `make_solver`: options -> solver."""
