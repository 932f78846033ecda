"""Exact gradients, against finite differences of what they claim to differentiate."""

import weakref

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks.oracles import Estimate, Exact, UnrolledState
from robustdeq.defences.descent import EntropyDescent, SmoothDescent
from robustdeq.threat import margin

from ..defences.models import cell, images, mdeq

STEP = 1e-8
"""In pixels: no ReLU switches within it, and float64 leaves seven digits of the differences."""


def differences(logits_of, x, y, directions):
    """Central differences of the margin of one image, all directions in one batch."""
    with torch.no_grad():
        shifted = torch.cat([x + STEP * directions, x - STEP * directions])
        m = margin(logits_of(shifted), y.expand(len(shifted)))
    return (m[: len(directions)] - m[len(directions) :]) / (2 * STEP)


def gradient(oracle, x, y):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(margin(oracle.surrogate(x), y).sum(), x)[0]


def directions_like(x, count):
    g = torch.Generator().manual_seed(5)
    return torch.randn(count, *x.shape[1:], dtype=x.dtype, generator=g)


def agree(ours, expected):
    """Derivatives along directions."""
    assert expected.norm() > 1e-4
    assert torch.cosine_similarity(ours, expected, dim=0) > 1 - 1e-8
    assert_close(ours, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def assert_exact(oracle, logits_of, x, count=24):
    """For each image: the gradient's derivatives along random directions are the differences of its margin."""
    y = oracle.deployed(x).argmax(1)
    grad = gradient(oracle, x, y)
    v = directions_like(x, count)
    for i in range(len(x)):
        ours = (grad[i] * v).flatten(1).sum(1)
        agree(ours, differences(logits_of, x[i : i + 1], y[i : i + 1], v))


def interior(*shape):
    """Pixels that neither [0, 1] nor a ball around them holds back."""
    return 0.3 + 0.4 * images(*shape)


def victim(name, count=2):
    return (cell(), interior(count, 1, 4, 4)) if name == "cell" else (mdeq(), interior(count, 3, 8, 8))


@pytest.mark.parametrize(("name", "state"), [("cell", 8), ("cell", 3), ("cell", None), ("mdeq", 8), ("mdeq", None)])
def test_undefended_it_is_the_gradient_of_the_deployed_margin(name, state):
    model, x = victim(name)
    predictor = model if state is None else rd.EarlyState(model, state=state)
    assert_exact(Exact(predictor), predictor, x)
    assert_close(Exact(predictor).surrogate(x), predictor(x), rtol=0, atol=1e-12)


def test_the_estimators_are_not_exact_so_the_comparison_can_tell():
    model, x = cell(), interior(2, 1, 4, 4)
    predictor = rd.EarlyState(model, state=3)
    for oracle in (UnrolledState(predictor, state=3), Estimate(predictor, gradient=rd.OneStep(), state=3)):
        with pytest.raises(AssertionError):
            assert_exact(oracle, predictor, x)


FREE, HELD_BACK = 0.3, 4 / 255
"""Radii of the defence: beyond all its steps, and smaller than one of them."""
CELLS = [(variant, "cell", readout) for variant in ("paper", "released") for readout in (8, 5, None)]
"""The readouts, on the cheap model; an MDEQ joins with one of them for each variant."""


@pytest.mark.parametrize(
    ("radius", "name", "readout"),
    [(radius, "cell", readout) for radius in (FREE, HELD_BACK) for readout in (8, 5, None)]
    + [(FREE, "mdeq", 8), (HELD_BACK, "mdeq", None)],
)
def test_along_gradient_steps_it_is_exact_through_the_defence(name, readout, radius):
    model, x = victim(name)
    predictor = rd.EntropyReduction(model, every=2, steps=2, step_size=0.1, radius=radius, direction="gradient")
    predictor = predictor if readout is None else rd.EarlyState(predictor, state=readout)
    assert_exact(Exact(predictor), predictor, x, count=12)


class Scales:
    """The smoothing's scales as they are at x: constants to the gradient, so to the differences too."""

    def __init__(self, monkeypatch):
        self.recorded, self.next = None, 0
        smoothed = SmoothDescent._smoothed

        def replaying(descent, g):
            if self.recorded is None:
                return smoothed(descent, g)
            if self.next == len(self.recorded):
                self.recorded.append(g.detach().abs().mean((1, 2, 3), keepdim=True))
            scale = self.recorded[self.next]
            self.next += 1
            return torch.tanh(g / (descent.smoothing * scale))

        monkeypatch.setattr(SmoothDescent, "_smoothed", replaying)

    def recording(self, surrogate, x):
        """A function of x with the scales of this x."""
        self.recorded, self.next = [], 0
        with torch.no_grad():
            surrogate(x)

        def replayed(x):
            self.next = 0
            return surrogate(x)

        return replayed


@pytest.mark.parametrize(("variant", "name", "readout"), [*CELLS, ("paper", "mdeq", 8), ("released", "mdeq", None)])
def test_through_smoothed_signs_it_is_the_gradient_of_its_surrogate(name, readout, variant, monkeypatch):
    model, x = victim(name, 1)
    predictor = rd.EntropyReduction(model, every=2, steps=2, variant=variant, direction="sign")
    predictor = predictor if readout is None else rd.EarlyState(predictor, state=readout)
    oracle = Exact(predictor, smoothing=2.0)
    y = oracle.deployed(x).argmax(1)
    grad = gradient(oracle, x, y)
    v = directions_like(x, 12)
    expected = differences(Scales(monkeypatch).recording(oracle.surrogate, x), x, y, v)
    agree((grad * v).flatten(1).sum(1), expected)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_without_smoothing_what_the_defence_adds_is_a_constant(variant, monkeypatch):
    model, x = cell(), interior(1, 1, 4, 4)
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=2, steps=3, variant=variant), state=8)
    oracle = Exact(predictor, smoothing=None)
    y = oracle.deployed(x).argmax(1)
    assert_close(oracle.surrogate(x), predictor(x), rtol=0, atol=1e-12)
    grad = gradient(oracle, x, y)

    moved = iter([image - x for image in predictor.walk(x).purification.inputs])
    monkeypatch.setattr(EntropyDescent, "__call__", lambda descent, H, f, z, x, x_hat, trace=None: x + next(moved))
    v = directions_like(x, 12)
    expected = differences(predictor, x, y, v)
    agree((grad * v).flatten(1).sum(1), expected)
    assert next(moved, None) is None


def test_sharper_smoothing_approaches_the_deployed_defence():
    model, x = mdeq(), interior(3, 3, 8, 8)
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=2, direction="sign"), state=8)
    deployed = predictor(x)
    gaps = [
        float((Exact(predictor, smoothing=s).surrogate(x) - deployed).abs().max().detach()) for s in (1.0, 0.1, 1e-4)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-2 * gaps[0]


def test_oblivious_it_is_the_undefended_models():
    model, x = cell(), interior(2, 1, 4, 4)
    defended = rd.EarlyState(rd.EntropyReduction(model), state=8)
    y = torch.tensor([0, 1])
    plain = Exact(rd.EarlyState(model, state=8))
    assert_close(gradient(Exact(defended, oblivious=True), x, y), gradient(plain, x, y), rtol=0, atol=1e-12)


class Saved:
    """A tensor that autograd keeps for the backward pass."""

    def __init__(self, tensor):
        self.tensor = tensor


def test_the_graph_of_an_intervention_is_not_kept():
    """What is kept between forward and backward does not grow with R: interventions are computed again."""
    model, x = mdeq(), interior(1, 3, 8, 8)
    kept = []
    for steps in (1, 6):
        alive = weakref.WeakSet()

        def pack(tensor, alive=alive):
            saved = Saved(tensor)
            alive.add(saved)
            return saved

        predictor = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=steps), state=8)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
            logits = Exact(predictor).surrogate(x.clone().requires_grad_())
        kept.append(sum(saved.tensor.numel() for saved in alive))
        assert logits.requires_grad
    assert kept[1] == kept[0]
