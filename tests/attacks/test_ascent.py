"""The ascent that attacks, training and validation share."""

import torch
from torch.testing import assert_close

from robustdeq.attacks import PGD, Direct
from robustdeq.attacks.ascent import climb, gradient_of
from robustdeq.threat import L2, Linf, cross_entropy

from .victims import RowByRow, images, predictions


def test_pgd_is_this_climb_from_the_same_start():
    model, x = RowByRow().eval(), images(4)
    y, threat = predictions(model, x), L2(0.3)
    start = threat.random_start(x, torch.Generator().manual_seed(0))
    gradient = gradient_of(lambda point, _: cross_entropy(model(point), y).sum())
    expected = PGD(threat, steps=3, step_size=0.1)(Direct(model), x, y, start=start).images
    # up to the last bits: some processors sum rows in an order that depends on where the tensors lie in memory
    assert_close(climb(gradient, start, x, threat, steps=3, step_size=0.1), expected, rtol=0, atol=1e-15)


def test_the_step_size_is_a_quarter_of_eps_unless_given():
    x = torch.full((1, 1, 2, 2), 0.5)
    moved = climb(lambda point, _: torch.ones_like(point), x, x, Linf(0.2), steps=1)
    assert_close(moved, x + 0.05)
    assert PGD(Linf(8 / 255)) == PGD(Linf(8 / 255), step_size=2 / 255)
    assert PGD(L2(0.5)).step_size == 0.125


def test_the_gradient_function_sees_the_current_images_and_the_number_of_the_step():
    x, seen = torch.full((1, 1, 2, 2), 0.5), []

    def gradient(point, step):
        seen.append((round(float(point.mean()), 4), step))
        return torch.ones_like(point)

    climb(gradient, x, x, Linf(0.2), steps=3, step_size=0.15)
    assert seen == [(0.5, 0), (0.65, 1), (0.7, 2)]


def test_an_image_whose_gradient_is_not_finite_stays_while_the_others_move():
    x = torch.full((2, 1, 2, 2), 0.5)
    weight = torch.tensor([torch.nan, 1.0]).reshape(2, 1, 1, 1)
    moved = climb(gradient_of(lambda point, _: point * weight), x, x, Linf(0.2), steps=2)
    assert_close(moved, x + torch.tensor([0.0, 0.1]).reshape(2, 1, 1, 1))


def test_a_start_outside_the_ball_is_projected_by_the_first_step():
    x = torch.full((1, 1, 2, 2), 0.9)
    moved = climb(lambda point, _: torch.zeros_like(point), x + 0.3, x, Linf(0.2), steps=1)
    assert_close(moved, torch.ones_like(x))
