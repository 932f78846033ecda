"""Fixed points: solvers, the loop that runs them, and how their results are differentiated."""

from robustdeq.solve.anderson import Anderson
from robustdeq.solve.broyden import Broyden
from robustdeq.solve.gradients import (
    GradientPolicy,
    Implicit,
    Neumann,
    OneStep,
    Phantom,
    SharedInverse,
    SolvedState,
    ThroughSolver,
    Unrolled,
    unroll,
)
from robustdeq.solve.jacobian import jacobian_penalty, spectral_radius
from robustdeq.solve.loop import Iteration, fixed_point
from robustdeq.solve.lowrank import LowRankInverse
from robustdeq.solve.picard import Picard
from robustdeq.solve.segment import SegmentBroyden
from robustdeq.solve.solution import NotConvergedError, Solution, Status
from robustdeq.solve.solver import Map, Solver

__all__ = [
    "Anderson",
    "Broyden",
    "GradientPolicy",
    "Implicit",
    "Iteration",
    "LowRankInverse",
    "Map",
    "Neumann",
    "NotConvergedError",
    "OneStep",
    "Phantom",
    "Picard",
    "SegmentBroyden",
    "SharedInverse",
    "Solution",
    "SolvedState",
    "Solver",
    "Status",
    "ThroughSolver",
    "Unrolled",
    "fixed_point",
    "jacobian_penalty",
    "spectral_radius",
    "unroll",
]
