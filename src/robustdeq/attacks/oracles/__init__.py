"""Oracles: what an attacker sees of a predictor. Only this part of `attacks` knows models.

Every oracle is a callable from pixels to logits with autograd. It shows the gradient of a surrogate, with the values of
the surrogate (`values="surrogate"`) or of the deployed predictor (`values="deployed"`).

| oracle | gradient |
|---|---|
| `Direct` | the predictor's own autograd; works for any callable |
| `UnrolledState` | K damped steps of f from an intermediate state (the paper's intermediate-state attack) |
| `Estimate` | any gradient policy (Phantom, Implicit, Neumann, ...) at any state: oblivious, aware or BPDA |
| `Exact` | autograd through every solver step and, smoothed, through the defence |
| `WatchedStates` | mean log-probabilities at the states that a defence looks at |
| `CarriedEstimate` | implicit, by a state and an adjoint carried from step to step of an attack |
| `StackedStates` | `UnrolledState` with steps and damping of each image's own |

`natural_oracle` chooses one for a predictor that is attacked as it is.

BPDA is no class of its own: it is `view="bpda"` of `Estimate` and `CarriedEstimate`, and `smoothing=None` of `Exact`.
Phantom and Implicit are gradient policies that `Estimate` takes; ThroughSolver is `Exact`.

A new oracle subclasses `Oracle`, or `StateOracle` if it estimates a gradient at a state.
"""

from robustdeq.attacks.oracles.carried import CarriedEstimate
from robustdeq.attacks.oracles.natural import READY, natural_oracle
from robustdeq.attacks.oracles.oracle import Direct, Oracle
from robustdeq.attacks.oracles.stacked import StackedStates
from robustdeq.attacks.oracles.states import Estimate, Exact, StateOracle, UnrolledState, WatchedStates

__all__ = [
    "READY",
    "CarriedEstimate",
    "Direct",
    "Estimate",
    "Exact",
    "Oracle",
    "StackedStates",
    "StateOracle",
    "UnrolledState",
    "WatchedStates",
    "natural_oracle",
]
