"""The example defences of docs/extend: they compose with the shipped ones and can be attacked by every oracle."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks.oracles import CarriedEstimate, Direct, Estimate, Exact, UnrolledState, WatchedStates
from robustdeq.models.predictor import entropy
from tests.examples.scripts import script

from .models import cell, images

MINE = script("extend/my_defences")

COMPOSED = {
    "sharpen": lambda m: MINE.Sharpen(m, every=3),
    "mean": MINE.MeanOfStates,
    "early sharpen": lambda m: rd.EarlyState(MINE.Sharpen(m), state=5),
    "early mean": lambda m: rd.EarlyState(MINE.MeanOfStates(m), state=5),
    "mean of entropy": lambda m: MINE.MeanOfStates(rd.EntropyReduction(m, steps=2)),
    "entropy of mean": lambda m: rd.EntropyReduction(MINE.MeanOfStates(m), steps=2),
    "sharpen of entropy": lambda m: MINE.Sharpen(rd.EntropyReduction(m, steps=2), every=3),
    "entropy of early sharpen": lambda m: rd.EntropyReduction(
        rd.EarlyState(MINE.Sharpen(m, every=3), state=7), steps=2
    ),
    "mean of sharpen": lambda m: MINE.MeanOfStates(MINE.Sharpen(m)),
}
ORACLES = {
    "direct": Direct,
    "oblivious": UnrolledState,
    "aware": lambda p: UnrolledState(p, aware=True),
    "bpda": lambda p: Estimate(p, view="bpda", state=p.early_state),
    "exact": Exact,
    "exact, the defence a constant": lambda p: Exact(p, smoothing=None),
    "watched": WatchedStates,
    "carried": CarriedEstimate,
}


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("defence", COMPOSED)
def test_every_oracle_gives_a_gradient_and_an_attack_runs(defence, oracle):
    predictor, x = COMPOSED[defence](cell()), images(2, 1, 4, 4)
    view = ORACLES[oracle](predictor)
    point = x.clone().requires_grad_()
    gradient = torch.autograd.grad(view(point)[:, 0].sum(), point)[0]
    assert gradient.isfinite().all()
    assert gradient.abs().amax((1, 2, 3)).min() > 0
    result = rd.PGD(rd.Linf(0.1), steps=2, step_size=0.05)(view, x, torch.tensor([0, 1]))
    assert_close(result.logits, predictor(result.images))


@pytest.mark.parametrize("defence", COMPOSED)
def test_its_trajectory_its_base_and_its_predictions_fit_together(defence):
    model, x = cell(), images(3, 1, 4, 4)
    predictor = COMPOSED[defence](model)
    trajectory = predictor.trajectory(x)
    assert_close(trajectory.deployed, predictor(x))
    assert_close(predictor(x)[:1], predictor(x[:1]))
    assert predictor.defended
    base = predictor.undefended()
    assert not base.defended
    assert base.early_state == predictor.early_state
    assert base.base is model
    if "early" in defence and "mean" not in defence:
        assert_close(trajectory.deployed, trajectory.logits[predictor.early_state - 1])


def test_an_early_state_tells_a_readout_how_far_it_may_read():
    mean = rd.EarlyState(MINE.MeanOfStates(cell(), states=2), state=5)
    x = images(2, 1, 4, 4)
    assert_close(mean(x), mean.trajectory(x).logits[3:5].mean(0))


def test_a_readout_sees_what_the_predictor_inside_would_return():
    class Flipped(rd.ReadoutDefence):
        def read(self, seen):
            assert seen.states.shape[:2] == (seen.last, 2)
            assert seen.residuals.shape == (seen.last, 2)
            return -seen.inside

    model, x = cell(), images(2, 1, 4, 4)
    for inner in (model, rd.EarlyState(model, state=4)):
        assert_close(Flipped(inner)(x), -inner(x))
    assert_close(rd.EarlyState(Flipped(model), state=4)(x), -rd.EarlyState(model, state=4)(x))


def test_two_input_defences_move_the_image_in_turn_each_at_its_own_steps():
    class Recorded(rd.InputDefence):
        def __init__(self, predictor, every, factor):
            super().__init__(predictor, every=every)
            self.factor, self.seen = factor, []

        def move(self, now):
            self.seen.append(now.step)
            assert_close(now.injection, self.base.encoder(now.image))
            return now.image * self.factor

    class Outer(Recorded):
        pass

    x = images(2, 1, 4, 4)
    inner = Recorded(cell(), 2, 0.5)
    outer = Outer(inner, 4, 0.9)
    inputs = outer.trajectory(x).inputs
    assert_close(inputs, torch.stack([0.5 * x, 0.225 * x, 0.1125 * x, 0.050625 * x]))
    assert (inner.seen, outer.seen) == ([2, 4, 6, 8], [4, 8])
    with pytest.raises(ValueError, match="continue the pass as variant 'paper' does"):
        Outer(rd.EntropyReduction(cell(), variant="released"), 2, 1.0)(x)


def test_the_gradient_of_an_intervention_is_that_of_the_next_state_s_loss():
    class Descent(rd.InputDefence):
        def move(self, now):
            gradient = now.gradient(entropy)
            image = now.image.detach().clone().requires_grad_()
            with torch.enable_grad():
                wanted = torch.autograd.grad(entropy(now.logits_at(image)).sum(), image)[0]
            assert_close(gradient.detach(), wanted)
            return (now.image - 0.05 * gradient).clamp(now.received - 0.1, now.received + 0.1).clamp(0, 1)

    model, x = cell(), images(2, 1, 4, 4)
    mine = rd.EarlyState(Descent(model, every=2), state=8)
    ours = rd.EntropyReduction(model, every=2, steps=1, step_size=0.05, radius=0.1, direction="gradient")
    assert_close(mine(x), rd.EarlyState(ours, state=8)(x))
    views = [Exact(p) for p in (mine, rd.EarlyState(ours, state=8))]
    points = [x.clone().requires_grad_() for _ in views]
    gradients = [torch.autograd.grad(v(p)[:, 0].sum(), p)[0] for v, p in zip(views, points, strict=True)]
    assert_close(*gradients)
