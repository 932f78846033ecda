"""Intermediate-state attacks that share a batch give the same results as each alone."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks import PGD
from robustdeq.attacks.oracles import StackedStates, UnrolledState
from robustdeq.threat import Linf

from ..defences.models import cell, images, mdeq

SETTINGS = [(1, 1.0), (4, 0.5), (2, 0.5), (4, 1.0)]
WHICH = torch.tensor([1, 0, 3, 2, 1, 0])


class Tupled(torch.nn.Module):
    """An encoder and dynamics whose injection is no tensor."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *arguments):
        if len(arguments) == 1:
            return (self.inner(*arguments),)
        z, (u,) = arguments
        return self.inner(z, u)

    def initial(self, u):
        return torch.zeros_like(u[0])


def tupled():
    model = cell()
    return rd.DEQ(encoder=Tupled(model.encoder), dynamics=Tupled(model.dynamics), head=model.head, solver=model.solver)


def oracles(predictor, **options):
    return [UnrolledState(predictor, state=3, steps=k, damping=d, **options) for k, d in SETTINGS]


@pytest.fixture
def x():
    return images(len(WHICH), 1, 4, 4)


@pytest.mark.parametrize("form", ["paper", "released"])
@pytest.mark.parametrize("make", [cell, mdeq, tupled])
def test_each_image_is_seen_by_its_own_oracle(make, form):
    model = make()
    x = images(len(WHICH), 1, 4, 4) if make is not mdeq else images(len(WHICH), 3, 8, 8)
    alone = oracles(model, form=form)
    x = x.requires_grad_()
    stacked = StackedStates.of(alone, WHICH).surrogate(x)
    slopes = torch.autograd.grad(stacked.logsumexp(1).sum(), x)[0]
    for row, number in enumerate(WHICH.tolist()):
        one = x[row : row + 1].detach().requires_grad_()
        logits = alone[number].surrogate(one)
        assert_close(stacked[row : row + 1], logits, rtol=0, atol=1e-11)
        assert_close(slopes[row : row + 1], torch.autograd.grad(logits.logsumexp(1).sum(), one)[0], rtol=0, atol=1e-11)


def test_an_attack_on_the_stack_equals_each_attack_alone_even_where_images_leave(x):
    predictor = rd.EntropyReduction(cell(solver=rd.Broyden(max_steps=4)), every=2, steps=2, direction="sign")
    alone = oracles(predictor, aware=True)
    y = predictor(x).argmax(1)
    y[2] = (y[2] + 1) % 3  # misclassified: not among those that are attacked
    x[4] = torch.nan
    attack = PGD(Linf(0.3), steps=4, step_size=0.1, random_start=False)
    for every_image in (True, False):
        stacked = attack(StackedStates.of(alone, WHICH), x, y, every_image=every_image)
        for row, number in enumerate(WHICH.tolist()):
            own = slice(row, row + 1)
            result = attack(alone[number], x[own], y[own], every_image=every_image)
            assert_close(stacked.images[own], result.images, rtol=0, atol=1e-9, equal_nan=True)
            assert stacked.queries[own].tolist() == result.queries.tolist()
            assert stacked.success[own].tolist() == result.success.tolist()


def test_oracles_that_differ_in_more_and_batches_of_another_size_are_refused(x):
    model = cell()
    with pytest.raises(ValueError, match="steps and damping alone"):
        StackedStates.of([UnrolledState(model, state=1), UnrolledState(model, state=2)], WHICH % 2)
    with pytest.raises(ValueError, match="settings for 6 images, got 2"):
        StackedStates.of(oracles(model), WHICH)(x[:2])
