"""Training from Python: a DEQ of your own, callbacks, a loss and an optimizer of your own."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import robustdeq as rd


@dataclass(frozen=True, kw_only=True)
class CleanToo(rd.PGDAT):
    """PGD adversarial training plus cross-entropy on the clean images."""

    clean: float = 0.5

    def losses(self, model: nn.Module, x: Tensor, y: Tensor, attacked: rd.Attacked, draws, jacobian=0.0) -> rd.Losses:
        """The loss, and its parts for the logs."""
        loss = super().losses(model, x, y, attacked, draws, jacobian)
        logits, _ = self.forward(model, rd.Attacked(x), draws, "clean", penalised=False)
        clean = nn.functional.cross_entropy(logits, y)
        return rd.Losses(loss.total + self.clean * clean, {**loss.parts, "clean": clean.detach()}, loss.logits)


def main(out: str | None = None) -> None:
    """Train twice: by a recipe, and with a loss and an optimizer of one's own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        changes = {"model": {"name": "my_deq:conv_deq"}, "validation": {"every": 16, "images": 50}}
        config = rd.load_recipe("digits-nano-trades", schedule={"max_steps": 32}, **changes)
        trainer = rd.Trainer(config, folder / "recipe", on_validation=lambda row: print(f"step {row['step']}", row))
        model = rd.load(trainer.fit())
        print(f"{type(model).__name__} for eps {model.metadata['eps']}")

        losses = []
        own = rd.Trainer(
            rd.load_recipe("digits-nano-trades", schedule={"max_steps": 32, "lr": 0.1, "pretrain_steps": 0}, **changes),
            folder / "own",
            objective=CleanToo(threat=rd.Linf(0.15), steps=2, step_size=0.12, states=rd.RandomState()),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            on_step=lambda row: losses.append(row["clean"]),  # such as wandb.log
        )
        own.fit()
        print(f"clean loss {losses[0]:.2f} to {losses[-1]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
