"""Randomness as a pure function of seed, step and name."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq.threat import L2, Linf
from robustdeq.training import Draws


def test_a_draw_depends_on_seed_step_and_name_alone():
    like = torch.empty(4, 3)
    first = Draws(1, 2).normal("start", like)
    Draws(1, 2).normal("other", like)
    assert torch.equal(first, Draws(1, 2).normal("start", like))
    others = [Draws(2, 2).normal("start", like), Draws(1, 3).normal("start", like), Draws(1, 2).normal("end", like)]
    assert not any(torch.equal(first, other) for other in others)


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    draws = Draws(0, 0)
    draws.normal("a", torch.empty(2)), draws.integer("b", 1, 8), draws.chance("c", 0.5)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)], ids=repr)
def test_the_shares_of_all_ranks_are_the_draw_of_one_process(world_size, threat):
    joint = torch.empty(6, 1, 2, 2, dtype=torch.float64)
    share = joint[: 6 // world_size]
    for draw in (lambda d, like: d.normal("a", like), lambda d, like: d.per_image("a", like, threat.random_offset)):
        parts = [draw(Draws(0, 5, rank, world_size), share) for rank in range(world_size)]
        assert torch.equal(torch.cat(parts), draw(Draws(0, 5), joint))


def test_ranks_share_integers_and_chances_but_not_their_own_generators():
    ranks = [Draws(0, 1, rank, 3) for rank in range(3)]
    assert len({d.integer("depth", 1, 1000) for d in ranks}) == 1
    assert len({d.chance("jacobian", 0.5) for d in ranks}) == 1
    assert len({float(torch.rand((), generator=d.own_generator("dropout"))) for d in ranks}) == 3


def test_integers_include_both_ends():
    assert {Draws(0, step).integer("jitter", -2, 1) for step in range(100)} == {-2, -1, 0, 1}


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_a_chance_has_its_probability(probability):
    share = sum(Draws(0, step).chance("jacobian", probability) for step in range(2000)) / 2000
    assert_close(share, probability, rtol=0, atol=0.04 if probability == 0.3 else 0)
