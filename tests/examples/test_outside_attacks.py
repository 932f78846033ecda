"""examples/outside_attacks.py: outside libraries break as many images as ours at equal settings."""

import warnings

import pytest
import torch

import robustdeq as rd
from robustdeq.data import load_digits
from tests.examples.scripts import script


@pytest.fixture(scope="module")
def example():
    return script("outside_attacks")


@pytest.fixture(scope="module")
def task(example):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = example.trained(60)
    images = load_digits()[2]
    return model, images.pixels[:8].float() / 255, images.labels[:8]


@pytest.mark.long
@pytest.mark.parametrize("library", ["foolbox", "torchattacks", "art", "pyautoattack"])
@pytest.mark.parametrize("subject", ["predictor", "oracle"])
def test_an_outside_library_breaks_as_many_images_as_ours_at_equal_settings(
    example, task, library, subject, monkeypatch
):
    model, x, y = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(library, reason="pip install --no-deps torchattacks" if library == "torchattacks" else None)
        monkeypatch.setattr(example, "LIBRARIES", {library: example.LIBRARIES[library]})
        if subject == "predictor":
            net = rd.EarlyState(model, state=8)
            view = rd.oracles.Direct(net)
        else:
            view = rd.UnrolledState(rd.EarlyState(rd.EntropyReduction(model, every=4, steps=1)), values="deployed")
            net = view.module()
        rows = list(example.compare(net, view, x, y))
    assert rows
    before = int((view.deployed(x).argmax(1) != y).sum())
    for name, theirs, ours, kept, own in rows:
        assert ours > before, name
        if "FAB" in name:  # theirs drops points outside the ball, ours projects them into it
            assert theirs <= ours
        else:
            assert (theirs, kept) == (ours, own), name
