"""An oracle of your own: what an attacker sees of a predictor."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from my_model import digits, trained
from torch import Tensor

import robustdeq as rd
from robustdeq.attacks.oracles import Direct


@dataclass(frozen=True, eq=False)
class AveragedGradient(rd.Oracle):
    """Logits averaged over noisy copies of the image: a smoother gradient where the predictor's own is rough."""

    predictor: Callable[[Tensor], Tensor]
    copies: int = 4
    noise: float = 0.02

    @property
    def target(self) -> Callable[[Tensor], Tensor]:
        """The deployed predictor, which judges every attack."""
        return self.predictor

    def estimate(self, x: Tensor) -> Tensor:
        """The surrogate's logits, differentiable in x."""
        generator = torch.Generator().manual_seed(0)  # the same noise at every call: an oracle is a function
        noise = self.noise * torch.randn(self.copies, *x.shape[1:], generator=generator).to(x)
        logits = [self.predictor(x + each) for each in noise]  # one noise for all images: no batch-mates involved
        return torch.stack(logits).mean(0)


def main() -> None:
    """Compare its gradient with the model's own, then attack with it."""
    model, (x, y) = trained(), digits(20)
    oracles = {"direct": Direct(model), "averaged": AveragedGradient(model)}
    print(rd.gradient_honesty(oracles, x, y, directions=2).table())
    for values in ("surrogate", "deployed"):  # what it shows; the gradient is the surrogate's either way
        oracle = AveragedGradient(model, values=values)
        result = rd.PGD(rd.Linf(0.15), steps=3, step_size=0.15 / 4)(oracle, x, y)
        print(f"values={values}: {int(result.success.sum())} of {len(x)} fooled, judged by the deployed model")


if __name__ == "__main__":
    main()
