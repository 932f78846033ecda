"""Dropout masks and effective weights: drawn and computed once per pass."""

from collections import Counter

import pytest
import torch

import robustdeq as rd
from robustdeq.models.kernels import WeightNormConv2d


@pytest.fixture
def model(make_mdeq):
    return make_mdeq(dropout=0.4).train()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_masks_differ_between_forwards(model, x):
    first, second = model.run(x), model.run(x)
    assert not torch.equal(first.f.masks[0], second.f.masks[0])
    assert (first.logits - second.logits).abs().max() > 1e-6


def test_masks_are_channel_wise_with_inverted_scaling(make_mdeq, make_images):
    model = make_mdeq(dropout=0.25, channels=(64, 64)).train()
    masks = model.run(make_images(16, 3, 4, 4), max_steps=1, generator=seeded()).f.masks
    assert [m.shape for m in masks] == [(16, 64, 1, 1)] * 2
    values = torch.cat([m.flatten() for m in masks])
    torch.testing.assert_close(values.unique(), torch.tensor([0.0, 1 / 0.75], dtype=torch.float64))
    assert (values == 0).double().mean().item() == pytest.approx(0.25, abs=0.04)  # four standard errors


def test_all_f_calls_of_a_forward_share_the_masks(model, x):
    result = model.run(x)
    with torch.no_grad():
        y = result.f(result.state.z)
        residual = (y - result.state.z).norm(dim=1) / (y.norm(dim=1) + 1e-9)
        for _ in range(5):
            y = (y + result.f(y)) / 2
    torch.testing.assert_close(residual, result.state.solution.residual, rtol=0, atol=1e-10)  # the solver's calls
    torch.testing.assert_close(y, result.y, rtol=0, atol=1e-10)  # the differentiated ones


def test_a_generator_makes_a_training_pass_reproducible_without_the_global_one(model, x):
    state = torch.get_rng_state()
    first, second, other = (model.run(x, generator=seeded(s)).logits for s in (1, 1, 2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert (first - other).abs().max() > 1e-6
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(
        model.truncated(x, generator=seeded(1)), model.truncated(x, generator=seeded(1)), rtol=0, atol=0
    )


def test_rebinding_keeps_the_masks(model, x):
    f = model.run(x).f
    assert all(a is b for a, b in zip(f.masks, f.rebind(torch.zeros_like(f.u)).masks, strict=True))


@torch.no_grad()
def test_there_is_no_dropout_in_eval_mode(model, x, make_mdeq):
    model.eval()
    assert model.run(x).f.masks is None
    without = make_mdeq(dropout=0.0)
    without.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(x), without(x), rtol=0, atol=0)


@pytest.fixture
def weight_calls(monkeypatch):
    calls = Counter()
    original = WeightNormConv2d.weight

    def counting(layer, *size):
        calls[id(layer), torch.is_grad_enabled()] += 1
        return original(layer, *size)

    monkeypatch.setattr(WeightNormConv2d, "weight", counting)
    return calls


LAYERS = 3 * 2  # two block convolutions and an output convolution on each of two scales


def test_effective_weights_are_computed_once_per_pass_and_grad_mode(model, x, weight_calls):
    result = model.run(x)
    assert len(weight_calls) == 2 * LAYERS
    assert set(weight_calls.values()) == {1}
    result.logits.sum().backward()
    result.f.rebind(result.f.u)(result.state.z)
    assert set(weight_calls.values()) == {1}
    model.run(x)
    assert set(weight_calls.values()) == {2}


@pytest.mark.parametrize("gradient", [rd.Phantom(), rd.ThroughSolver()])
def test_one_grad_mode_computes_effective_weights_once(model, x, weight_calls, gradient):
    model.gradient = gradient
    with torch.set_grad_enabled(gradient.differentiates_solver):
        model(x)
    assert len(weight_calls) == LAYERS
    assert set(weight_calls.values()) == {1}
