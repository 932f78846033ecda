"""A defence of your own, and the attack that a reviewer would try on it."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from my_model import digits, trained
from torch import Tensor, nn

import robustdeq as rd


class Quantised(nn.Module):
    """Round the pixels to a few levels before the model sees them: a defence that hides its gradient."""

    def __init__(self, predictor: nn.Module, levels: int = 4) -> None:
        super().__init__()
        self.predictor = predictor
        self.levels = levels

    def purify(self, x: Tensor) -> Tensor:
        """The image that the model is shown."""
        return (x * (self.levels - 1)).round() / (self.levels - 1)

    def forward(self, x: Tensor) -> Tensor:
        """The deployed logits; the gradient of rounding is zero everywhere."""
        return self.predictor(self.purify(x))


class StraightThrough(Quantised):
    """The same function with the rounding differentiated as the identity (BPDA): what the attacker should follow."""

    def forward(self, x: Tensor) -> Tensor:
        """The same logits, another gradient."""
        return self.predictor(x + (self.purify(x) - x).detach())


def main() -> None:
    """Evaluate it naively, then honestly."""
    model, (x, y) = trained(), digits(50)
    defended = Quantised(model)
    print(f"gradient of the defended loss: {input_gradient(defended, x, y).abs().max():.1e}: an attack goes nowhere")
    with tempfile.TemporaryDirectory() as folder:
        for name, predictor in {"naive": defended, "bpda": StraightThrough(model)}.items():
            verdict = rd.evaluate(predictor, (x, y), suite="quick", out=Path(folder) / name, threat=rd.Linf(0.15))
            print(f"{name}: clean {verdict.clean.value:.0%}, robust {verdict.union.value:.0%}")


def input_gradient(predictor: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the cross-entropy with respect to the pixels."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(predictor(x), y), x)[0]


if __name__ == "__main__":
    main()
