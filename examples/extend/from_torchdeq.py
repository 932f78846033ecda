"""A model as torchdeq's users write it, taken over: gradients in eval mode, a trajectory, an attack, a defence."""

import torch
from torch import Tensor, nn
from torchdeq import get_deq, reset_deq

import robustdeq as rd


class Cell(nn.Module):
    """f(z; u) = tanh(W z + u)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=0.4)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """One application of f."""
        return torch.tanh(self.linear(z) + u)


class Theirs(nn.Module):
    """Your module, as it is."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, width))
        self.cell = Cell(width)
        self.deq = get_deq(f_solver="anderson", f_max_iter=40, f_tol=1e-5, ift=True)
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        reset_deq(self)
        u = self.encoder(x)
        states, _ = self.deq(lambda z: self.cell(z, u), torch.zeros_like(u))
        return self.fc(states[-1])


def ours(x: Tensor | None = None) -> rd.DEQ:
    """The module as a DEQ; `robustdeq evaluate from_torchdeq:ours --data digits --eps 0.15 --out DIR` attacks it."""
    theirs = Theirs()  # load your weights here
    return rd.adapt.torchdeq(theirs, x, f="cell", head="fc")  # encoder, f and head are found by their usual names too


def main() -> None:
    """Compare the logits, then attack and defend."""
    torch.manual_seed(0)
    x, y = torch.rand(8, 1, 8, 8), torch.arange(8)
    model = ours(x)  # with example images, every part is compared with what the module computes
    model.eval()
    print("converged:", model.run(x).state.solution.converged.all().item())
    print("states:", tuple(model.trajectory(x).states.shape))
    result = rd.PGD(rd.Linf(0.15))(model, x, y)
    print(f"attacked by {result.oracle}: {result.success.sum()} of {len(x)} wrong")
    defended = rd.EarlyState(rd.EntropyReduction(model, every=8, radius=0.15, step_size=0.15 / 4), state=24)
    print("defended:", defended(result.images).argmax(1).tolist())


if __name__ == "__main__":
    main()
