"""Chooses the state to deploy, on held-out images (the paper's Sec. 4)."""

from __future__ import annotations

import torch
from torch import Tensor

from robustdeq.attacks import PGD, Estimate
from robustdeq.attacks.oracles import READY
from robustdeq.defences import EarlyState
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.threat import Linf, Threat


def select_state(
    predictor: DynamicPredictor,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat | None = None,
    seed: int = 0,
    batch_size: int = 250,
) -> EarlyState:
    """The predictor, read at the state with the highest accuracy under the ready-made PGD-10; the earliest if tied.

    The attack is on the undefended model at its final state. Judge the choice by other attacks on other images.

    Args:
        predictor: A DEQ, or a defence around one.
        x: Held-out images, pixels in [0, 1]; not those that results are reported on.
        y: Labels of the images.
        threat: Ball of the attack, which takes ten steps of a quarter of its radius; Linf(8/255) if not given.
        seed: Seed of the attack.
        batch_size: Images attacked at a time.
    """
    threat = Linf(8 / 255) if threat is None else threat
    attack = PGD(threat, steps=10, step_size=threat.eps / 4, seed=seed)
    oracle = Estimate(predictor.base, gradient=READY)
    index = torch.arange(len(x))
    attacked = [
        attack(oracle, images, labels, index=places).images
        for images, labels, places in zip(
            x.split(batch_size), y.split(batch_size), index.split(batch_size), strict=True
        )
    ]
    return EarlyState.select(predictor, torch.cat(attacked), y, batch_size=batch_size)
