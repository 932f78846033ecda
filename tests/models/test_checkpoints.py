"""save_pretrained and load: the round trip, and what is on disk."""

import json
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

import robustdeq as rd
from robustdeq.models import registry


def same_weights(a, b):
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        torch.equal(left[k], right[k]) and left[k].dtype == right[k].dtype for k in left
    )


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, z, u):
        return torch.tanh(self.linear(z) / 2 + u)


@pytest.fixture
def own():
    """A user's own DEQ, registered for the length of a test."""

    @rd.register_model("own-deq")
    def own_deq(width=6, classes=3):
        return rd.DEQ(encoder=nn.Linear(4, width), dynamics=Cell(width), head=nn.Linear(width, classes))

    yield own_deq
    del registry._BUILDERS["own-deq"]


SETTINGS = [
    (rd.Broyden(max_steps=3, divergence=50.0), rd.Phantom(steps=2, damping=0.7)),
    (rd.Anderson(max_steps=5, memory=3, ridge=1e-6, mixing=0.9), rd.Neumann(steps=4, damping=0.3)),
    (rd.Picard(max_steps=4, damping=0.8, criterion="absolute"), rd.OneStep()),
    (rd.Broyden(batch_coupled=True), rd.Implicit(solver=rd.Anderson(max_steps=9, memory=2), tol=1e-5)),
    (rd.Broyden(max_steps=3), rd.ThroughSolver()),
    (rd.Broyden(max_steps=3), rd.SharedInverse()),
]


@pytest.mark.parametrize(
    ("solver", "gradient", "dtype"),
    [(*parts, (torch.float32, torch.float64)[i % 2]) for i, parts in enumerate(SETTINGS)],
    ids=lambda part: getattr(part, "__name__", type(part).__name__),
)
def test_an_mdeq_comes_back_exactly(make_mdeq, make_images, tmp_path, solver, gradient, dtype):
    model = make_mdeq(
        dtype=dtype, downsample=1, mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.5), solver=solver, gradient=gradient
    )
    model.tol, model.readout = 2e-4, "last"
    model.metadata = {"dataset": "digits", "eps": 8 / 255, "training": {"epochs": 3, "tags": ["a", "b"]}}
    model.save_pretrained(tmp_path / "folder")
    loaded = rd.load(tmp_path / "folder")
    assert type(loaded) is rd.MDEQ
    assert same_weights(loaded, model)
    assert loaded.config == model.config
    assert (loaded.solver, loaded.gradient, loaded.tol, loaded.readout) == (solver, gradient, 2e-4, "last")
    assert loaded.metadata == model.metadata
    assert not loaded.training
    images = make_images(2, 3, 8, 8, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), model(images), rtol=0, atol=0)


def test_a_resnet_comes_back_exactly(tmp_path):
    model = rd.create_model("resnet-tiny", num_classes=3, in_channels=1)
    model.train()(torch.rand(4, 1, 8, 8))  # statistics that are not the initial ones
    model.eval().save_pretrained(tmp_path)
    loaded = rd.load(tmp_path)
    assert same_weights(loaded, model)
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(loaded(images), model(images))


def test_a_users_registered_deq_comes_back_exactly(own, tmp_path):
    model = rd.create_model("own-deq", width=7).double()
    model.solver = rd.Anderson(max_steps=4)
    model.save_pretrained(str(tmp_path))
    loaded = rd.load(str(tmp_path))
    assert loaded.dynamics.linear.in_features == 7
    assert loaded.solver == rd.Anderson(max_steps=4)
    x = torch.rand(2, 4, dtype=torch.float64)
    assert torch.equal(loaded(x), model(x))


def test_load_takes_a_precision_and_a_device(model, tmp_path):
    model.save_pretrained(tmp_path)
    loaded = rd.load(tmp_path, dtype=torch.float32, device="cpu")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}


def test_loading_leaves_the_global_generator_alone(model, tmp_path):
    model.save_pretrained(tmp_path)
    state = torch.get_rng_state()
    rd.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_folder_holds_json_and_safetensors_and_nothing_else(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["format"] == "robustdeq"
    assert config["architecture"] == "mdeq"
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert header.keys() - {"__metadata__"} == model.state_dict().keys()


def test_saving_over_a_checkpoint_replaces_it(make_mdeq, tmp_path):
    make_mdeq(seed=0).save_pretrained(tmp_path)
    second = make_mdeq(seed=1, scales=1)
    second.save_pretrained(tmp_path)
    assert same_weights(rd.load(tmp_path), second)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


def test_from_pretrained_gives_an_instance_of_its_class(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert same_weights(rd.MDEQ.from_pretrained(tmp_path), model)
    with pytest.raises(rd.CheckpointError, match="holds a MDEQ, not a ResNet"):
        rd.ResNet.from_pretrained(tmp_path)


def test_the_name_that_a_model_was_created_by_is_stored(tmp_path):
    rd.create_model("mdeq-nano", dropout=0.1).save_pretrained(tmp_path / "named")
    rd.create_model("mdeq-nano", channels=(8, 16)).save_pretrained(tmp_path / "other-sizes")
    configs = {name: json.loads((tmp_path / name / "config.json").read_text()) for name in ("named", "other-sizes")}
    assert configs["named"]["preset"] == "mdeq-nano"
    assert "preset" not in configs["other-sizes"]
    assert rd.load(tmp_path / "named").model_name == "mdeq-nano"
    assert rd.load(tmp_path / "other-sizes").model_name == "mdeq"


def test_the_name_of_an_older_checkpoint_is_recognised_by_its_sizes(tmp_path):
    model = rd.create_model("mdeq-nano")
    model.architecture = replace(model.architecture, preset=None)
    model.save_pretrained(tmp_path)
    assert "preset" not in json.loads((tmp_path / "config.json").read_text())
    assert rd.load(tmp_path).model_name == "mdeq-nano"
