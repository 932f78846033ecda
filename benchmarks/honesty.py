"""How honest carried gradients are: cosines with finite differences of the deployed margin, while an attack moves on.

    python benchmarks/honesty.py [--json benchmarks/honesty.json] [--images 8] [--directions 48]

Each model's dynamics are scaled, f(0; u) + s (f(z; u) - f(0; u)), until the spectral radius of df/dz at the solved
states, averaged over the images, is 0.3, 0.6 or 0.9. PGD of 2/255 in a ball of 8/255 then moves the images, and at some
of its steps each oracle's gradient is compared. 1 is an honest gradient, 0 says nothing. Float64, random weights,
seed 0; digits.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import robustdeq as rd
from robustdeq.attacks.ascent import ascend, input_gradient
from robustdeq.attacks.oracles import READY, CarriedEstimate, Estimate, Oracle
from robustdeq.data import load_digits
from robustdeq.host.provenance import provenance
from robustdeq.models.dynamics import bind
from robustdeq.threat import margin

RADII = (0.3, 0.6, 0.9)
STEPS = (1, 2, 5, 10)
BALL = rd.Linf(8 / 255)


class Cell(nn.Module):
    """f(z; u) = tanh(W z + u), with an orthogonal W: smooth, and without a split."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=1.5)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """The next state."""
        return torch.tanh(self.linear(z) + u)


class Scaled(nn.Module):
    """f(0; u) + s (f(z; u) - f(0; u)) of other dynamics: its Jacobian in z is s times theirs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, 1.0

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """The next state."""
        f = bind(self.inner, u)
        at_zero = f(self.initial(u))
        return torch.lerp(at_zero, f(z), self.scale)

    def initial(self, u: Tensor) -> Tensor:
        """z^[0]."""
        initial = getattr(self.inner, "initial", None)
        return torch.zeros_like(u) if initial is None else initial(u).clone()


class Unpacked(nn.Module):
    """MDEQ's head for flat states."""

    def __init__(self, model: rd.MDEQ, x: Tensor) -> None:
        super().__init__()
        self.head, self.f = model.head, model.begin(x)[0]

    def forward(self, z: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.f.unpack(z))
        return logits


def models(x: Tensor) -> dict[str, rd.DEQ]:
    """A smooth cell and mdeq-nano, with random weights."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 32))
    cell = rd.DEQ(encoder=encoder, dynamics=Scaled(Cell(32)), head=nn.Linear(32, 10))
    nano = rd.create_model("mdeq-nano", num_classes=10)
    assert isinstance(nano, rd.MDEQ)
    for p in nano.dynamics.parameters():
        p.data += 0.3 * torch.randn_like(p)
    mdeq = rd.DEQ(encoder=nano.encoder, dynamics=Scaled(nano.dynamics), head=Unpacked(nano.double().eval(), x))
    return {"cell": cell.double().eval(), "mdeq-nano": mdeq.double().eval()}


def radius(model: rd.DEQ, x: Tensor) -> float:
    """Mean spectral radius of df/dz at the solved states."""
    with torch.no_grad():
        f, z0 = model.begin(x)
        z = rd.fixed_point(f, z0, rd.Broyden(max_steps=30), tol=1e-8).value
    generator = torch.Generator().manual_seed(0)
    return float(rd.spectral_radius(f, z, generator=generator).mean())


def scale_to(model: rd.DEQ, x: Tensor, wanted: float) -> float:
    """Choose the scale by bisection; returns the radius that was reached."""
    low, high = 0.0, 4.0
    for _ in range(10):
        model.dynamics.scale = (low + high) / 2
        low, high = (low, model.dynamics.scale) if radius(model, x) > wanted else (model.dynamics.scale, high)
    return radius(model, x)


@dataclass(frozen=True, eq=False)
class Followed(Oracle):
    """An oracle's surrogate as it is, state carried too, beside the deployed values."""

    inner: Oracle

    @property
    def target(self) -> nn.Module:
        """The deployed predictor."""
        return self.inner.target  # type: ignore[return-value]

    def estimate(self, x: Tensor) -> Tensor:
        """The inner oracle's surrogate."""
        return self.inner.surrogate(x)


def oracles(model: rd.DEQ, count: int) -> dict[str, Oracle]:
    """The gradients to compare; each is shown the images of one attack of its own, in order."""
    deployed, rows = rd.EarlyState(model, state=8), torch.arange(count)
    carried = {f"J={j}": CarriedEstimate(deployed, iterations=j) for j in (1, 2, 4)}
    return {
        "Phantom(5)": Estimate(deployed, gradient=rd.Phantom(5, 0.5)),
        "ready-made, Phantom(9)": Estimate(deployed, gradient=READY),
        "Implicit": Estimate(deployed, gradient=rd.Implicit(), state=8),
        **{f"adjoint carried, {j}": oracle.for_attack(count).for_rows(rows) for j, oracle in carried.items()},
        **{
            f"state and adjoint carried, {j}": Followed(oracle.for_attack(count).for_rows(rows))
            for j, oracle in carried.items()
        },
    }


def path(oracle: Oracle, x: Tensor, y: Tensor) -> list[Tensor]:
    """The images that PGD shows at its steps, as it climbs along this oracle's gradient of the negative margin."""
    shown = [x]
    for _ in range(max(STEPS) - 1):
        here = shown[-1].clone().requires_grad_()
        shown.append(ascend(here, -input_gradient(margin(oracle(here), y), here), x, BALL))
    return shown


def measure(model: rd.DEQ, x: Tensor, directions: int) -> list[dict[str, object]]:
    """Mean and least cosine of each oracle at some steps; all are shown the same images, one step after the other."""
    y, compared = model(x).argmax(1).detach(), oracles(model, len(x))
    records: list[dict[str, object]] = []
    for step, here in enumerate(path(compared["ready-made, Phantom(9)"], x, y), start=1):
        # at every step, so that each oracle sees every image once; the differences cost little where nobody looks
        honesty = rd.gradient_honesty(compared, here, y, directions=directions if step in STEPS else 1, step=1e-6)
        if step in STEPS:
            records += [
                {"oracle": name, "step": step, "mean": honesty.mean[name], "min": honesty.min[name]}
                for name in compared
            ]
    return records


def main() -> None:
    """Print the table; write the records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--directions", type=int, default=48)
    wanted = parser.parse_args()
    x = load_digits()[2].pixels[: wanted.images].double() / 255
    records = []
    for name, model in models(x).items():
        for target in RADII:
            reached = scale_to(model, x, target)
            found = measure(model, x, wanted.directions)
            records += [{"model": name, "radius": target, "reached": reached, **record} for record in found]
            print(f"\n{name}, spectral radius {reached:.2f}: mean cosine (smallest of an image) at step")
            print(f"{'oracle':<30}" + "".join(f"{step:>16}" for step in STEPS))
            for oracle in dict.fromkeys(r["oracle"] for r in found):
                cells = [f"{r['mean']:.3f} ({r['min']:.3f})" for r in found if r["oracle"] == oracle]
                print(f"{oracle!s:<30}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    if wanted.json is not None:
        wanted.json.write_text(json.dumps({"environment": provenance(), "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
