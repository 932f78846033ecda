"""Passes over states in the order that is fastest compute the same."""

import pytest
import torch

import robustdeq as rd
from robustdeq.models.multiscale import BoundMDEQ
from robustdeq.training import Draws, Standard
from robustdeq.training.objectives import Penalty


def permuted(f: BoundMDEQ, z: torch.Tensor) -> torch.Tensor:
    return torch.cat([m.permute(0, 2, 3, 1).flatten(1) for m in f.unpack(z)], 1)


@pytest.fixture
def model(make_mdeq):
    return make_mdeq(scales=3, dropout=0.3)


@pytest.fixture
def x(make_images):
    return make_images(3, 3, 8, 16)


@torch.no_grad()
def test_f_of_a_reordered_state_is_f_reordered(model, x):
    f, z0 = model.train().begin(x)
    z, fast = torch.randn_like(z0), f.reordered()
    expected = permuted(f, f(z))
    torch.testing.assert_close(fast(permuted(f, z)), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast.rebind(f.u)(permuted(f, z)), expected, rtol=0, atol=1e-12)
    assert not torch.equal(f(z), expected)  # the order does differ
    assert not f.channels_last  # f itself is what it was


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_logits_and_gradients_do_not_depend_on_the_order(model, x, training, batch):
    model.train(training)
    results = []
    for ordered in (True, False):
        x_ = x[:batch].clone().requires_grad_()
        result = model.run(x_, generator=torch.Generator().manual_seed(3), ordered=ordered)
        assert result.f.channels_last is not ordered
        assert (result.f.masks is not None) is training
        leaves = [x_, *model.parameters()]
        gradients = torch.autograd.grad(result.logits.square().sum(), leaves, allow_unused=True)
        results.append((result.logits, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("penalty", [None, Penalty(weight=1.0)])
def test_training_reorders_states_unless_probes_are_drawn_for_them(model, x, monkeypatch, penalty):
    orders, run = [], model.run

    def watched(*args, **options):
        orders.append(options["ordered"])
        return run(*args, **options)

    monkeypatch.setattr(model, "run", watched)
    y = torch.zeros(len(x), dtype=torch.int64)
    Standard().losses(model.train(), x, x, y, Draws(seed=0, step=0), penalty)
    assert orders == [penalty is not None]


def test_other_dynamics_keep_their_order():
    class Linear(torch.nn.Module):
        def forward(self, z: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return 0.5 * z + u

    deq = rd.DEQ(encoder=torch.nn.Identity(), dynamics=Linear(), head=torch.nn.Identity())
    x = torch.rand(2, 3)
    f, _ = deq.begin(x)
    assert f.reordered() is f
    torch.testing.assert_close(deq.run(x, ordered=False).logits, deq(x), rtol=0, atol=0)
