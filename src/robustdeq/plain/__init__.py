"""The same formulas written straightforwardly: oracle for the tests, baseline for `robustdeq bench`."""

from robustdeq.plain.mdeq import CountedDynamics, default_layout, evaluate, predict, solve, unroll
from robustdeq.plain.solver import PlainSolution, broyden

__all__ = ["CountedDynamics", "PlainSolution", "broyden", "default_layout", "evaluate", "predict", "solve", "unroll"]
