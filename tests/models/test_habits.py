"""Habits that users of PyTorch expect of every module."""

import gc
import weakref

import torch

import robustdeq as rd


def test_a_registered_builder_that_returns_an_mdeq_is_saved_under_its_own_name(tmp_path):
    def build(shift: float = 0.25, solver: rd.Solver = rd.Picard()):  # noqa: B008
        model = rd.create_model("mdeq-nano", solver=solver)
        model.encoder.normalize = torch.nn.Hardtanh(0.0, shift)
        return model

    rd.register_model("test-habits-mdeq")(build)
    model = rd.create_model("test-habits-mdeq", shift=0.5, solver=rd.Picard(max_steps=3)).eval()
    model.save_pretrained(tmp_path)
    x = torch.rand(2, 1, 8, 8)
    loaded = rd.load(tmp_path)
    assert loaded.architecture.name == "test-habits-mdeq"
    assert torch.equal(loaded(x), model(x))


def test_a_deleted_model_is_freed_at_once():
    gc.collect()
    model = rd.create_model("mdeq-nano")
    reference = weakref.ref(model.dynamics)
    del model
    assert reference() is None


def test_a_replica_computes_with_its_own_layers():
    dynamics = rd.create_model("mdeq-nano").dynamics
    replica = dynamics._replicate_for_data_parallel()
    assert all(half.__self__ is replica for half in replica.halves)
