"""The state to deploy, chosen by the ready-made PGD-10 on held-out images."""

import torch

import robustdeq as rd
from robustdeq.evaluation import select_state

from ..defences.models import cell, images


def test_the_state_is_the_most_accurate_one_under_the_ready_made_attack():
    model, x = cell(), images(16, 1, 4, 4)
    y = model(x).argmax(1)
    threat = rd.Linf(0.2)
    attack = rd.PGD(threat, steps=10, step_size=0.05, seed=3)
    attacked = attack(rd.oracles.Estimate(model, gradient=rd.Phantom(9, 0.5)), x, y).images
    for predictor in (model, rd.EntropyReduction(model, every=2, steps=2, direction="sign")):
        correct = (predictor.trajectory(attacked).logits.argmax(-1) == y).sum(1)
        chosen = select_state(predictor, x, y, threat=threat, seed=3, batch_size=11)
        assert chosen.predictor is predictor
        assert chosen.state == 1 + int(correct.argmax())
        assert 0 < int(correct.max()) < 16  # the attack does break something


def test_clean_images_may_choose_another_state():
    """So the attack matters."""
    model, x = cell(), images(60, 1, 4, 4)
    y = torch.randint(4, (60,), generator=torch.Generator().manual_seed(0))
    chosen = {eps: select_state(model, x, y, threat=rd.Linf(eps)).state for eps in (0.0, 0.3)}
    assert chosen[0.0] == rd.EarlyState.select(model, x, y).state
    assert len(set(chosen.values())) == 2
