"""The moving average of weights and statistics."""

import pytest
import torch
from torch import nn

from robustdeq.training.assembly import update_average


def test_it_moves_by_one_minus_the_decay_and_faster_while_it_is_young():
    average, model = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    for module, value in ((average, 0.0), (model, 1.0)):
        nn.init.constant_(module.weight, value)
        module.running_mean.fill_(value)
    model.num_batches_tracked.fill_(7)
    update_average(average, model, 0.9, step=1000)
    assert average.weight.tolist() == pytest.approx([0.1, 0.1])
    assert average.running_mean.tolist() == pytest.approx([0.1, 0.1])
    assert average.num_batches_tracked == 7  # counts are taken over
    update_average(average, model, 0.9, step=0)  # young: (0 + 1) / (0 + 10)
    assert average.weight.tolist() == pytest.approx([0.1 + 0.9 * 0.9] * 2)


def test_the_model_is_not_touched():
    average, model = nn.Linear(2, 2), nn.Linear(2, 2)
    before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
    update_average(average, model, 0.5, step=100)
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), before)
