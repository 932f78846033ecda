"""The updates of x^ alone: memory layouts, non-finite gradients, and encoders whose gradients are views."""

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.defences.descent import EntropyDescent, InputEntropy

from .models import Cell, cell, images, mdeq


def moved(model, x, direction):
    """The image after two steps from z^[0]."""
    f, z = model.begin(x)
    with torch.no_grad():
        return EntropyDescent(2, 0.05, 0.07, direction)(InputEntropy(model), f, z, x, x)


def written_out(model, x, direction):
    """The same, as the formula reads."""
    f, z = model.begin(x)
    x_hat = x
    for _ in range(2):
        x_hat = x_hat.detach().requires_grad_()
        p = model.head(f.rebind(model.encoder(x_hat))(z)).log_softmax(1)
        (g,) = torch.autograd.grad(-(p.exp() * p).sum(), x_hat)
        g = g.sign() if direction == "sign" else g
        x_hat = torch.minimum(torch.maximum(x_hat - 0.05 * g, x - 0.07), x + 0.07).clamp(0, 1)
    return x_hat.detach()


def averaging(width=6):
    """Looks at the mean of the pixels alone: its gradient is one number, expanded over the image."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, width))
        model = rd.DEQ(encoder=encoder, dynamics=Cell(width), head=nn.Linear(width, 4))
        nn.init.normal_(model.head.weight, std=3)
    return model.double().eval()


@pytest.mark.parametrize("direction", ["sign", "gradient"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("model", "shape"), [(cell(), (3, 1, 4, 4)), (averaging(), (3, 3, 4, 4))])
def test_updates_are_the_formula_in_every_layout(model, shape, layout, direction):
    x = images(*shape)
    found = moved(model, x.contiguous(memory_format=layout), direction)
    assert (found - x).abs().max() > 1e-4
    torch.testing.assert_close(found, written_out(model, x, direction), rtol=0, atol=1e-12)


@pytest.mark.parametrize("direction", ["sign", "gradient"])
def test_pixels_without_a_finite_gradient_do_not_move(direction):
    class Broken(torch.autograd.Function):
        """Gradients of three pixels are not numbers."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            g = g.clone()
            g[:, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
            return g

    class Encoder(nn.Module):
        def forward(self, x):
            return whole.encoder(Broken.apply(x))

    whole = mdeq()
    x = images(2, 3, 8, 8)
    found = moved(rd.DEQ(encoder=Encoder(), dynamics=whole.dynamics, head=whole.head).eval(), x, direction)
    assert torch.equal(found[:, 0, 0, :3], x[:, 0, 0, :3])
    assert ((found - x).abs() > 1e-6).double().mean() > 0.5
