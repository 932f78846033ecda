"""The same formulas written straightforwardly: oracle for the tests, baseline for `robustdeq bench`."""

from robustdeq.plain.defence import PlainDefence, defended_mdeq, entropy_reduction, released_entropy_reduction
from robustdeq.plain.mdeq import CountedDynamics, default_layout, predict, solve
from robustdeq.plain.solver import PlainSolution, broyden

__all__ = [
    "CountedDynamics",
    "PlainDefence",
    "PlainSolution",
    "broyden",
    "default_layout",
    "defended_mdeq",
    "entropy_reduction",
    "predict",
    "released_entropy_reduction",
    "solve",
]
