"""PGD-10 from the recorded start, with the gradient at an unrolled intermediate state."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from robustdeq.attacks import PGD
from robustdeq.attacks.oracles import UnrolledState
from robustdeq.threat import Linf

from .comparison import compares


@dataclass(frozen=True, eq=False)
class Recorded(UnrolledState):
    """The oracle, keeping every answer."""

    answers: list[Tensor] = field(default_factory=list)

    def estimate(self, x):
        logits = super().estimate(x)
        self.answers.append(logits.detach())
        return logits


@compares("attack", "x_adv", "pgd_*")
def test_pgd_at_an_intermediate_state_is_the_released_one(case):
    oracle = Recorded(case.model(), state=3, steps=5, damping=0.5, form="released")
    attack = PGD(Linf(8 / 255), steps=10, step_size=2 / 255)
    result = attack(oracle, case.x, case.y, start=case.tensor("attack", "x_start"))
    assert len(oracle.answers) == 10
    return {
        "x_adv": result.images,
        "pgd_logits_before_step": torch.stack(oracle.answers),
        "pgd_ce_before_step": torch.stack([F.cross_entropy(logits, case.y) for logits in oracle.answers]),
    }
