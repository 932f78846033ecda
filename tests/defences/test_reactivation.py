"""Samples that froze and become active again with a purified input are batch-independent, whatever the solver."""

import pytest
import torch
from torch import nn

import robustdeq as rd

from .models import cell


class Cell(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.w = nn.Linear(size, size, bias=False)

    def forward(self, z, u):
        return torch.tanh(0.6 * self.w(z) + u)


def model(solver):
    torch.manual_seed(0)
    parts = {"encoder": nn.Sequential(nn.Flatten(), nn.Linear(16, 12)), "dynamics": Cell(12), "head": nn.Linear(12, 5)}
    return rd.DEQ(**parts, solver=solver, tol=1e-2).double().eval()


SWITCHES = [{}, {"direction": "sign"}, {"resolve": False}, {"history": "restarted", "resolve": True}]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("solver", [rd.Broyden(), rd.Anderson(), rd.Picard()], ids=lambda s: type(s).__name__)
def test_predictions_are_batch_independent(solver, switches):
    defended = rd.EntropyReduction(model(solver), every=1, steps=2, step_size=0.3, radius=0.5, **switches)
    x = torch.rand(5, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([defended(image[None]) for image in x])
    torch.testing.assert_close(defended(x), alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_a_batch_of_nan_images_has_nan_logits(switches):
    defended = rd.EntropyReduction(model(rd.Broyden()), every=2, steps=2, **switches)
    assert defended(torch.full((1, 1, 4, 4), torch.nan, dtype=torch.float64)).isnan().all()


def test_the_shared_inverse_of_a_restarted_pass_counts_from_its_segment():
    """Read out as its lowest state or named by its number, a state has one gradient."""
    base = cell(tol=0.0)
    defended = rd.EntropyReduction(base, every=4, steps=2, step_size=0.3, radius=0.5, variant="released")
    x = torch.rand(60, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lowest = defended.walk(x).solution.lowest_step
    gradients = []
    for state in (None, 7, 8):
        point = x.clone().requires_grad_()
        oracle = rd.oracles.Estimate(defended, gradient=rd.SharedInverse(), state=state, view="aware")
        gradients.append(torch.autograd.grad(oracle(point)[:, 0].sum(), point)[0])
    for i, step in enumerate(lowest.tolist()):
        torch.testing.assert_close(gradients[0][i], gradients[step - 6][i], rtol=1e-9, atol=1e-12)
    assert set(lowest.tolist()) == {7, 8}
