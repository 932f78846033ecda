"""A defended prediction computes nothing twice: layers and parts of f are counted."""

from collections import Counter

import pytest
import torch

import robustdeq as rd
from robustdeq.models.mdeq.dynamics import BoundMDEQ

from .models import images, mdeq, plainly


@pytest.fixture
def counted(monkeypatch):
    """An MDEQ, and a count of what is called in it (copies of its parts included)."""
    model, counts = mdeq(), Counter()

    def count(name):
        return lambda *_: counts.update([name])

    model.encoder.register_forward_hook(count("encoder"))
    model.head.register_forward_hook(count("head"))
    for i, block in enumerate(model.dynamics.blocks):
        block.conv1.register_forward_hook(count(f"conv1 of scale {i}"))
        block.conv2.register_forward_hook(count(f"conv2 of scale {i}"))
    for name in ("prepare", "inject_unpacked"):
        method = getattr(BoundMDEQ, name)

        def counting(self, *arguments, _method=method, _name=name):
            counts[_name] += 1
            return _method(self, *arguments)

        monkeypatch.setattr(BoundMDEQ, name, counting)
    return model, counts


def test_algorithm_1_prepares_each_state_once_and_the_rest_per_iteration(counted):
    model, counts = counted
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=2, steps=3), state=8)
    with torch.no_grad():
        predictor(images(2, 3, 8, 8))
    interventions, steps = 4, 3
    states = 8 + interventions  # z^[0..7], and the z^[t] that each intervention looks at before it is solved again
    assert counts["prepare"] == states
    assert counts["inject_unpacked"] == 8 + interventions * (steps + 1)  # of which one rebases the solver
    assert counts["encoder"] == 1 + interventions * (steps + 1)
    assert counts["head"] == interventions * steps + 1
    for scale in (0, 1):
        assert counts[f"conv1 of scale {scale}"] == states
        assert counts[f"conv2 of scale {scale}"] == states


def test_the_released_segments_prepare_each_state_once(counted):
    model, counts = counted
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=2, steps=3, variant="released"), state=8)
    with torch.no_grad():
        predictor(images(2, 3, 8, 8))
    assert counts["prepare"] == 8  # z^[0..7]; z^[8] is only read
    assert counts["inject_unpacked"] == 8 + 3 + 3 * 3
    assert counts["encoder"] == 1 + 3 * (3 + 1)
    assert counts["head"] == 3 * 3 + 1


def test_an_early_state_is_not_defended_beyond_itself(counted):
    model, counts = counted
    with torch.no_grad():
        rd.EarlyState(rd.EntropyReduction(model, every=2, steps=3), state=3)(images(2, 3, 8, 8))
    assert counts["prepare"] == 3 + 1
    assert counts["head"] == 3 + 1


def test_the_plain_defence_computes_f_in_full_every_time():
    run = plainly(mdeq(), images(2, 3, 8, 8), every=2, steps=3, judge_last=False)
    assert run.evaluations == 8 + 4 * (3 + 1)
