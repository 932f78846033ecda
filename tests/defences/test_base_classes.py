"""The base classes of defences: what a subclass does not override is that of the predictor inside."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.defences import Defence, InputDefence
from robustdeq.models.predictor import DynamicPredictor

from .models import cell, images


class MeanOfStates(Defence):
    """Reads the mean of the last logits."""

    def read_out(self, walked, *, exact=False):
        states = walked.solution.trajectory[-3:]
        return torch.stack([self.base.head(walked.f.unpack(z)) for z in states]).mean(0)


class Darken(InputDefence):
    """Makes the image darker at every intervention."""

    def move(self, now):
        return 0.9 * now.image


def test_a_plain_wrapper_is_the_predictor_inside():
    model, x = cell(), images(2, 1, 4, 4)
    inner = rd.EarlyState(rd.EntropyReduction(model, steps=1), state=4)
    wrapped = Defence(inner)
    for name in ("base", "defended", "reads_residuals", "watched", "early_state", "deployed_state"):
        assert getattr(wrapped, name) == getattr(inner, name)
    assert torch.equal(wrapped(x), inner(x))
    assert torch.equal(wrapped.undefended()(x), rd.EarlyState(model, state=4)(x))


def test_a_defence_of_the_readout_overrides_one_method():
    model, x = cell(), images(2, 1, 4, 4)
    for predictor in (model, rd.EntropyReduction(model, steps=1)):
        mean = MeanOfStates(predictor)
        trajectory = mean.trajectory(x)
        assert_close(mean(x), trajectory.logits[-3:].mean(0), rtol=0, atol=1e-12)
        assert_close(trajectory.deployed, mean(x), rtol=0, atol=1e-12)
        assert mean.defended == predictor.defended
        assert isinstance(mean.undefended(), MeanOfStates)
        assert mean.undefended().predictor is model
        assert mean.predictor is predictor


def test_a_defence_of_the_input_overrides_one_method():
    model, x = cell(), images(2, 1, 4, 4)
    defended = Darken(model, every=4)
    trajectory = defended.trajectory(x)
    assert_close(trajectory.inputs, torch.stack([0.9 * x, 0.81 * x]))
    assert trajectory.inner_entropy is None
    assert (defended.defended, defended.watched) == (True, [4, 8])
    assert defended.undefended() is model
    assert (defended(x) - model(x)).abs().max() > 1e-6
    point = x.clone().requires_grad_()
    exact = rd.oracles.Exact(rd.EarlyState(defended, state=8))(point)
    assert_close(exact.detach(), trajectory.logits[7], rtol=0, atol=1e-12)
    assert torch.autograd.grad(exact.sum(), point)[0].abs().max() > 0
    with pytest.raises(ValueError, match="defends its input already"):
        Darken(defended)


def test_predictors_say_what_evaluation_needs_to_know():
    model = rd.create_model("mdeq-nano", solver=rd.Broyden(max_steps=3))
    model.metadata = {"eps": 0.1}
    defended = rd.EntropyReduction(model)
    early: DynamicPredictor = rd.EarlyState(defended, state=2)
    for predictor in (model, defended, early):
        assert predictor.num_states == 3
        assert predictor.state_names == ["1", "2", "3", "final"]
        assert predictor.metadata == {"eps": 0.1}
        assert predictor.model_name == "mdeq-nano"
        assert predictor.batch_independent
    assert [p.deployed_state for p in (model, defended, early)] == ["final", "final", "2"]
    assert [p.early_state for p in (model, defended, early)] == [None, None, 2]
    model.gradient = rd.Implicit(solver=rd.Broyden(batch_coupled=True))
    assert not early.batch_independent
