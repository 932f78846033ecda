"""A tour of one DEQ: build it, train it, look at its dynamics, swap its solver and gradient, save and load it."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from rich import print
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import robustdeq as rd


class Cell(nn.Module):
    """f(z; u) = tanh(W z + u): any module that takes z and u and returns a tensor shaped like z."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=0.3)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """One application of f."""
        return torch.tanh(self.linear(z) + u)


@rd.register_model("digits-deq")  # a checkpoint stores this name and the options; loading calls the function again
def digits_deq(width: int = 96) -> rd.DEQ:
    """8x8 images to ten classes."""
    return rd.DEQ(
        encoder=nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 6 * 6, width)),
        dynamics=Cell(width),
        head=nn.Linear(width, 10),
        solver=rd.Broyden(max_steps=12),
        gradient=rd.Phantom(),
    )


def digits(seed: int) -> list[Tensor]:
    """Training images, test images, training labels, test labels; pixels in [0, 1]."""
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    return train_test_split(x.float().reshape(-1, 1, 8, 8) / 16, y, test_size=0.25, random_state=seed, stratify=y)


def accuracy(logits: Tensor, y: Tensor) -> float:
    """The share of images that the logits classify correctly."""
    return (logits.argmax(-1) == y).double().mean().item()


def train(model: rd.DEQ, x: Tensor, y: Tensor, epochs: int) -> None:
    """Ordinary PyTorch training: the model's gradient policy takes care of the backward pass."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in track(range(epochs), "training"):
        for batch in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def show_dynamics(model: rd.DEQ, x: Tensor, y: Tensor) -> None:
    """Print accuracy, entropy and residual at every state z^[t] on the way to the equilibrium."""
    trajectory = model.trajectory(x)
    table = Table("state", "accuracy", "mean entropy", "mean residual", title="The dynamics on the test images")
    for t, logits in enumerate(trajectory.logits, 1):
        entropy, residual = trajectory.entropy[t - 1].mean(), trajectory.residual[t - 1].mean()
        table.add_row(f"z[{t}]", f"{accuracy(logits, y):.1%}", f"{entropy:.3f}", f"{residual:.1e}")
    print(table)
    end = model.run(x)
    print(f"{end.state.solution.converged.sum()} of {len(x)} images converged to a residual below {model.tol:g}")
    radius = rd.spectral_radius(end.f, end.state.z)
    print(f"spectral radius of df/dz where they ended: mean {radius.mean():.2f}, largest {radius.max():.2f}")


def show_swaps(model: rd.DEQ, x: Tensor, y: Tensor) -> None:
    """Replace the solver and the gradient policy; the weights stay as they are."""
    table = Table("solver", "gradient", "accuracy", "mean |dL/dx|", title="Other solvers and gradients, same weights")
    own = solver, gradient = model.solver, model.gradient
    solvers = [(s, gradient) for s in (solver, rd.Anderson(max_steps=12), rd.Picard(max_steps=24))]
    for pair in solvers + [(solver, g) for g in (rd.Implicit(), rd.Neumann(), rd.OneStep())]:
        model.solver, model.gradient = pair
        pixels = x.clone().requires_grad_()
        logits = model(pixels)
        (slope,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), pixels)
        table.add_row(*[type(p).__name__ for p in pair], f"{accuracy(logits, y):.1%}", f"{slope.abs().mean():.4f}")
    model.solver, model.gradient = own
    print(table)


def main(argv: list[str] | None = None) -> None:
    """Run the tour."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="keep the checkpoint here (default: a temporary folder)")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    model = rd.create_model("digits-deq")
    x, x_test, y, y_test = digits(args.seed)
    train(model, x, y, args.epochs)
    logits = model(x_test)
    print(f"test accuracy {accuracy(logits, y_test):.1%}")
    show_dynamics(model, x_test, y_test)
    show_swaps(model, x_test, y_test)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary)
        model.save_pretrained(folder)
        same = torch.equal(rd.load(folder)(x_test), logits)
        files = ", ".join(sorted(file.name for file in folder.iterdir()))
        print(f"saved {files}; loaded back, the logits are {'identical' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches this small only wait for a second thread
    main()
