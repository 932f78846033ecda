"""A DEQ of your own: parts, a registered name, training, a checkpoint, an evaluation."""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import robustdeq as rd
from robustdeq.data import load_digits


class Cell(nn.Module):
    """f(z; u) = tanh(W z + u): any module that takes z and u and returns a tensor shaped like z."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=0.3)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """One application of f."""
        return torch.tanh(self.linear(z) + u)


@rd.register_model("my-deq")  # a checkpoint stores this name and the options; loading calls the function again
def my_deq(width: int = 48) -> rd.DEQ:
    """8x8 images to ten classes."""
    return rd.DEQ(
        encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, width)),
        dynamics=Cell(width),
        head=nn.Linear(width, 10),
        solver=rd.Broyden(max_steps=8),
        gradient=rd.Phantom(steps=5, damping=0.5),
    )


def load() -> rd.DEQ:
    """For the command line, in this folder: robustdeq evaluate my_model:load --suite quick --out DIR."""
    model = rd.create_model("my-deq")
    model.metadata = {"dataset": "digits", "eps": 0.15, "image_shape": [1, 8, 8]}
    return model


def digits(count: int) -> tuple[Tensor, Tensor]:
    """The first test digits in [0, 1] and their labels."""
    test = load_digits()[2]
    return test.pixels[:count].float() / 255, test.labels[:count]


def trained(steps: int = 40) -> rd.DEQ:
    """Trained on the embedded digits for about a second; the other examples of this folder use it."""
    torch.manual_seed(0)
    model, images = load(), load_digits()[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        rows = torch.randint(len(images.labels), (64,))
        loss = nn.functional.cross_entropy(model(images.pixels[rows].float() / 255), images.labels[rows])
        optimizer.zero_grad()
        loss.backward()  # ordinary PyTorch: the gradient policy takes care of the backward pass
        optimizer.step()
    return model.eval()


def main() -> None:
    """Train, save, load and evaluate it."""
    model, (x, y) = trained(), digits(50)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder) / "checkpoint")
        again = rd.load(Path(folder) / "checkpoint")
        assert torch.equal(again(x), model(x))
        print(rd.evaluate(again, (x, y), suite="quick", out=Path(folder) / "results").table())


if __name__ == "__main__":
    main()
