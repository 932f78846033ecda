"""An attack of your own: you write the search, the base class guarantees the rest."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from my_model import digits, trained
from torch import Tensor

import robustdeq as rd


@dataclass(frozen=True, kw_only=True)
class MomentumAttack(rd.Attack):
    """Sign steps along a decaying sum of normalised gradients (Dong et al. 2018); the step is a quarter of eps."""

    steps: int = 10
    decay: float = 1.0

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"momentum-{self.steps}"

    def search(self, task) -> Tensor:
        """Adversarial images, one for each of `task.x`; the base class projects them and judges them again."""
        x, velocity = self.begin(task, task.all_rows, run=0), torch.zeros_like(task.x)
        for _ in range(self.steps):
            x = x.detach().requires_grad_()
            loss = F.cross_entropy(task.seen(x, task.all_rows), task.y, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, x)
            size = gradient.abs().flatten(1).mean(1).clamp_min(1e-12)
            velocity = self.decay * velocity + gradient / size.reshape(-1, *[1] * (x.ndim - 1))
            x = self.threat.project(x.detach() + self.threat.eps / 4 * self.threat.ascent(velocity), task.x)
        return x


def main() -> None:
    """Attack a small DEQ on digits through its third state, beside PGD."""
    model, (x, y) = trained(), digits(50)
    threat = rd.Linf(0.15)
    oracle = rd.UnrolledState(model, state=3, steps=2, damping=0.5)
    for attack in (MomentumAttack(threat), rd.PGD(threat, steps=10, step_size=threat.eps / 4)):
        result = attack(oracle, x, y)
        print(f"{attack.name:12} fools {int(result.success.sum())} of {len(x)} images, queries {result.queries[0]}")
        assert threat.contains(result.images, x).all()


if __name__ == "__main__":
    main()
