"""Passes over states in the order that is fastest compute the same."""

import pytest
import torch

import robustdeq as rd
from robustdeq.models.multiscale import BoundMDEQ


def permuted(f: BoundMDEQ, z: torch.Tensor) -> torch.Tensor:
    return torch.cat([m.permute(0, 2, 3, 1).flatten(1) for m in f.unpack(z)], 1)


@torch.no_grad()
def test_f_of_a_reordered_state_is_f_reordered(model, x):
    f, _ = model.begin(x)
    z = torch.randn(len(x), model.begin(x)[1].shape[1], dtype=x.dtype)
    fast = f.reordered()
    expected = permuted(f, f(z))
    torch.testing.assert_close(fast(permuted(f, z)), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(fast.rebind(f.u)(permuted(f, z)), expected, rtol=0, atol=1e-12)
    assert not torch.equal(f(z), expected)  # the order does differ


@pytest.mark.parametrize("training", [False, True])
def test_logits_and_gradients_do_not_depend_on_the_order(model, x, training):
    model.train(training)
    results = []
    for ordered in (True, False):
        x_ = x.clone().requires_grad_()
        logits = model.run(x_, generator=torch.Generator().manual_seed(3), ordered=ordered).logits
        leaves = [x_, *(p for p in model.parameters() if p.requires_grad)]
        results.append((logits, *torch.autograd.grad(logits.square().sum(), leaves, allow_unused=True)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_other_dynamics_keep_their_order():
    class Linear(torch.nn.Module):
        def forward(self, z: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return 0.5 * z + u

    deq = rd.DEQ(encoder=torch.nn.Identity(), dynamics=Linear(), head=torch.nn.Identity())
    x = torch.rand(2, 3)
    f, _ = deq.begin(x)
    assert f.reordered() is f
    torch.testing.assert_close(deq.run(x, ordered=False).logits, deq(x), rtol=0, atol=0)
