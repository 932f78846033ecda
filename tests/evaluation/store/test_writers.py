"""Two processes that begin or extend one store at the same moment."""

import threading
import time

import pytest
import torch

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.run.plan import OtherStoreError
from robustdeq.evaluation.suites.suite import Suite
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images


@pytest.fixture
def slowly(monkeypatch):
    """Put a wait between reading the manifest and writing it."""
    write = Store.write_manifest

    def late(self, manifest):
        time.sleep(0.4)
        write(self, manifest)

    monkeypatch.setattr(Store, "write_manifest", late)


def linear(seed):
    """A predictor of its own weights."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).double()
    model[1].weight.data = torch.randn(10, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    model[1].bias.data.zero_()
    return model


def suite(name):
    """A suite of one attack."""
    return lambda context: Suite(name, [context.spec(name, "pgd", "direct", options={"steps": 1, "step_size": 0.01})])


def both(*calls):
    """Run the calls at the same time; returns the errors they raised."""
    raised = []

    def run(call):
        try:
            call()
        except OtherStoreError as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.usefixtures("slowly")
def test_two_models_that_begin_one_store_at_the_same_moment_do_not_both_finish(tmp_path):
    def begin(seed):
        return lambda: evaluate(linear(seed), images(4), suite("one"), tmp_path / "s", threat=Linf(EPS))

    (refused,) = both(begin(0), begin(1))
    assert "holds results of another model" in str(refused)


@pytest.mark.usefixtures("slowly")
def test_two_suites_that_join_one_store_at_the_same_moment_are_both_in_its_manifest(tmp_path):
    def add(name):
        return lambda: evaluate(linear(0), images(4), suite(name), tmp_path / "s", threat=Linf(EPS))

    assert not both(add("one"), add("two"))
    store = Store(tmp_path / "s")
    assert {*store.attacks} == {*store.manifest.suites} == {"one", "two"}
    assert all(map(store.complete, store.attacks))
