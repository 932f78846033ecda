"""Run alone or under torchrun: the gradients of training steps on a joint batch, BN in eval mode and no dropout."""

from __future__ import annotations

import sys

import torch

from robustdeq.data import load_dataset
from robustdeq.host.processes import launch
from robustdeq.models import create_model
from robustdeq.threat import Linf
from robustdeq.training import PGDAT, TRADES, Carried, RandomState
from robustdeq.training.step import TrainStep

BATCH = 8
ATTACK = {"threat": Linf(0.1), "steps": 2, "step_size": 0.06}
OBJECTIVES = {
    "pgdat": PGDAT(**ATTACK),
    "trades": TRADES(**ATTACK),
    "trades random": TRADES(states=RandomState(), **ATTACK),
    "trades random redrawn": TRADES(states=RandomState("released"), clean_target="redrawn", **ATTACK),
    "pgdat handed on": PGDAT(inner=Carried(handed_on=True), **ATTACK),
    "trades random carried": TRADES(states=RandomState(), inner=Carried(), **ATTACK),
}
STEPS = [("pretrain", 0.0), ("train", 0.0), ("train", 0.4)]


def main(out: str) -> None:
    """Save {(objective, step): (loss, gradients)} of the first rank."""
    fabric = launch("cpu", "64-true")
    rank, world_size = fabric.global_rank, fabric.world_size
    images = load_dataset("digits").train.subset(slice(0, BATCH))
    own = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
    x, y = images.pixels01(own, dtype=torch.float64), images.labels[own]
    found = {}
    for name, objective in OBJECTIVES.items():
        torch.manual_seed(0)
        model = create_model("mdeq-nano").double()
        for p in model.parameters():
            p.data += 0.05 * torch.randn_like(p)
        optimizer = torch.optim.Adam(model.parameters())
        step, optimizer = fabric.setup(TrainStep(model, objective, 4), optimizer)
        step.eval()
        for k, (phase, jacobian) in enumerate(STEPS):
            optimizer.zero_grad()
            result = step(x, y, (0, k, rank, world_size), phase, jacobian)
            fabric.backward(result.total)
            loss = fabric.all_reduce(result.total.detach().clone(), reduce_op="mean")
            found[f"{name} {k}"] = (loss, [p.grad.clone() for p in model.parameters()])
    if rank == 0:
        torch.save({"world_size": world_size, "found": found}, out)


if __name__ == "__main__":
    main(sys.argv[1])
