"""Predictors of the digits that take milliseconds: a small DEQ, and what a user might bring."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import torch
from torch import nn

import robustdeq as rd
from robustdeq.data import load_dataset
from robustdeq.defences import EarlyState
from robustdeq.evaluation import Suite
from robustdeq.evaluation.suites.attacks import ready

EPS = 0.05
METADATA = {"dataset": "digits", "eps": EPS}


class Tanh(nn.Module):
    """f(z; u) = tanh(W z + u)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False)

    def forward(self, z, u):
        return torch.tanh(self.linear(z) + u)


def small_deq(states: int = 3) -> rd.DEQ:
    """One of your own."""
    return deepcopy(_fitted(states))


@cache
def _fitted(states: int) -> rd.DEQ:
    """Random features of the digits at an equilibrium, with a head fitted in closed form; in float64."""
    size = 24
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = rd.DEQ(
            encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, size)),
            dynamics=Tanh(size),
            head=nn.Linear(size, 10),
            solver=rd.Broyden(max_steps=states),
        ).double()
    train = load_dataset("digits").train
    with torch.no_grad():
        z = model.trajectory(train.pixels01(dtype=torch.float64)).states[-1]
        ones = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
        targets = nn.functional.one_hot(train.labels, 10).double()
        weights = torch.linalg.solve(ones.T @ ones + 1e-2 * torch.eye(size + 1).double(), ones.T @ targets)
        model.head.weight.copy_(8 * weights[:-1].T)
        model.head.bias.copy_(8 * weights[-1])
    model.metadata = METADATA
    return model.eval()


def deployed():
    """As `evaluate` deploys it."""
    return EarlyState(small_deq(), state=3)


def plain_function():
    """Logits by a function that knows nothing of this package."""
    model = small_deq()

    def logits(x):
        return model(x.double()).float()

    logits.metadata = METADATA
    return logits


def linear_function():
    """A function that takes microseconds: thousands of queries are affordable."""
    train = load_dataset("digits").train
    x, targets = train.pixels01().flatten(1), nn.functional.one_hot(train.labels, 10).float()
    weights = torch.linalg.solve(x.T @ x + torch.eye(64), x.T @ targets)

    def logits(x):
        return 8 * x.flatten(1) @ weights.to(x.dtype)

    logits.metadata = METADATA
    return logits


def short(context):
    """A suite of the ready-made attack with one step, under its usual name."""
    return Suite("short", [ready(context, options={"steps": 1, "step_size": context.threat.eps / 2})])


def images(count: int = 40):
    """Test images and labels."""
    test = load_dataset("digits").test
    return test.pixels01(slice(0, count), dtype=torch.float64), test.labels[:count]
