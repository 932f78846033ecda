"""Models that a user's own code builds: named as package.module:name, saved with that name, loaded where trusted."""

import json
import sys

import pytest
import torch

import robustdeq as rd
from robustdeq.host.references import import_module
from robustdeq.models import registry

CODE = """
import pathlib
import torch
from dataclasses import dataclass
from torch import nn
import robustdeq as rd

pathlib.Path("imported").write_text("yes")

class Cell(nn.Module):
    def forward(self, z, u):
        return 0.5 * torch.tanh(z) + u

@dataclass(frozen=True, kw_only=True)
class Slow(rd.Picard):
    pace: float = 1.0

def small(width=4, solver=None):
    return rd.DEQ(encoder=nn.Linear(4, width), dynamics=Cell(), head=nn.Linear(width, 3), solver=solver)

def broken():
    return {}["weights"]

@rd.register_model("registered-by-code")
def registered():
    return small()

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with code; `forget` makes the process as fresh as a new one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_code.py").write_text(CODE)
    yield tmp_path
    forget()


def forget():
    sys.modules.pop("my_code", None)
    registry._BUILDERS.pop("registered-by-code", None)


def test_a_model_named_by_its_function_comes_back_in_its_folder(folder):
    model = rd.create_model("my_code:small", width=5)
    model.solver = rd.Anderson(max_steps=4)
    model.save_pretrained(folder / "saved")
    forget()
    loaded = rd.load(folder / "saved")
    x = torch.rand(2, 4)
    assert torch.equal(loaded(x), model(x))
    assert loaded.solver == rd.Anderson(max_steps=4)
    assert loaded.model_name == "my_code:small"


def test_a_solver_of_one_s_own_is_stored_by_its_name(folder):
    model = rd.create_model("my_code:small")
    model.solver = sys.modules["my_code"].Slow(max_steps=3, pace=0.5)
    model.save_pretrained(folder / "saved")
    forget()
    solver = rd.load(folder / "saved").solver
    assert repr(solver) == repr(model.solver)
    assert isinstance(solver, sys.modules["my_code"].Slow)


@pytest.mark.parametrize("name", ["my_code:small", "registered-by-code"])
def test_elsewhere_a_checkpoint_runs_no_code_unless_it_is_trusted(folder, monkeypatch, name):
    import_module("my_code")
    rd.create_model(name).save_pretrained(folder / "saved")
    forget()
    (folder / "else").mkdir()
    monkeypatch.chdir(folder / "else")
    monkeypatch.syspath_prepend(str(folder))
    message = r"needs code outside robustdeq \(my_code\).*add --trust or --import my_code"
    for trust in (False, ["another"]):
        with pytest.raises(rd.CheckpointError, match=message):
            rd.load(folder / "saved", trust=trust)
    assert "my_code" not in sys.modules
    assert not (folder / "else" / "imported").exists()
    for trust in (True, ["my_code"]):
        forget()
        assert rd.load(folder / "saved", trust=trust)(torch.rand(1, 4)).shape == (1, 3)


@pytest.mark.parametrize("name", ["pathlib.Path.write_text", "torch.save"])
def test_trust_in_a_module_is_none_in_what_it_imports(folder, name):
    rd.create_model("my_code:small").save_pretrained(folder / "saved")
    path = folder / "saved" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architecture": f"my_code:{name}"}))
    with pytest.raises(rd.CheckpointError, match=rf"my_code:{name}, which my_code does not define itself.*add --trust"):
        rd.load(folder / "saved", trust=["my_code"])


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "robustdeq.host.files:write_atomically", "options": {"path": "written", "content": "x"}},
        {"options": {"width": 7}},
        {"solver": {"type": "my_code:Slow"}},
    ],
)
def test_a_checkpoint_that_was_changed_was_not_made_here(folder, change):
    rd.create_model("my_code:small").save_pretrained(folder / "saved")
    path = folder / "saved" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    forget()
    with pytest.raises(rd.CheckpointError, match=r"must not run code|belongs to another architecture"):
        rd.load(folder / "saved")
    assert "my_code" not in sys.modules


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("my_code:smal", {}, "my_code:smal: my_code has no smal; did you mean small?"),
        ("my_code:small", {"wdith": 3}, "my_code:small has no option 'wdith'; did you mean 'width'?"),
        ("my_code:broken", {}, "my_code:broken: the model cannot be built (KeyError: 'weights')"),
        ("my_code:broken", {"width": 3}, "my_code:broken has no option 'width'; it takes none"),
        ("my_code:number", {}, "my_code:number is a int; expected a function that builds a model"),
        ("conv-deq", {}, "unknown model 'conv-deq'"),
    ],
)
def test_a_model_that_cannot_be_built_is_one_line(folder, name, options, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        rd.create_model(name, **options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
