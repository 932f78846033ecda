"""The oracle of a predictor that is attacked without naming one."""

from __future__ import annotations

from typing import Any

from robustdeq.attacks.oracles.oracle import Direct, Oracle
from robustdeq.attacks.oracles.states import Estimate
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.solve import Phantom

READY = Phantom(steps=9, damping=0.5)
"""How the ready-made attack differentiates the final state (docs/method.md, section 5)."""


def natural_oracle(subject: Any) -> Oracle:
    """An oracle as it is; for a predictor, the oracle that needs no choice.

    - A DEQ: the ready-made one, the gradient of the final state unrolled nine times with weight 0.5.
    - A defence: the same gradient through the defended pass, at the purified image (BPDA). The undefended model's
      gradient would overstate the defence.
    - Any other callable from pixels to logits: its own gradient.

    Its values are the surrogate's; whoever attacks, the deployed predictor judges the result.
    """
    if isinstance(subject, Oracle):
        return subject
    if isinstance(subject, DynamicPredictor):
        return Estimate(subject, gradient=READY, view="bpda" if subject.defended else "oblivious")
    if callable(subject) and not isinstance(subject, type):
        return Direct(subject)
    raise TypeError(
        f"expected an oracle, a model or another predictor (a callable from pixels in [0, 1] to logits), got "
        f"{subject.__name__ if isinstance(subject, type) else f'a {type(subject).__name__}'}"
    )
