"""A model of one's own on the command line: trained, resumed, evaluated and used in its folder; refused elsewhere."""

import json
import sys

import pytest
import torch
from PIL import Image

from robustdeq.cli.main import main
from robustdeq.models import registry
from robustdeq.training.logs import read_log

CODE = """
import torch
from torch import nn
import robustdeq as rd

class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, z, u):
        return torch.tanh(0.5 * self.linear(z) + u)

def deq(num_classes, width=6, pixels=64):
    return rd.DEQ(
        encoder=nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.BatchNorm1d(width), nn.Dropout(0.2)),
        dynamics=Cell(width),
        head=nn.Linear(width, num_classes),
    )

@rd.register_model("own-deq")
def registered(num_classes):
    return deq(num_classes)

def no_deq():
    return nn.Linear(64, 10)

def other_classes():
    return deq(3)
"""

QUICK = ["--data.name=digits", "--objective.steps=1", "--validation.images=10", "--validation.steps=1", "--device=cpu"]
QUICK += ["--schedule.pretrain_steps=1", "--schedule.batch_size=10", "--schedule.ema=0.9", "--schedule.max_steps"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_deq.py").write_text(CODE)
    yield tmp_path
    forget()


def forget():
    """Make this process as fresh as a new one."""
    sys.modules.pop("my_deq", None)
    registry._BUILDERS.pop("own-deq", None)


def run(*words):
    forget()
    return main([str(word) for word in words])


def error(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("robustdeq: error: ")


def test_it_is_trained_evaluated_and_predicts_in_its_folder_and_elsewhere_only_if_trusted(folder, capsys, monkeypatch):
    assert run("train", "--model.name", "my_deq:deq", "--out=runs/own", *QUICK, "2") == 0
    assert "recipe digits-nano-trades" in capsys.readouterr().out
    config = json.loads((folder / "runs" / "own" / "best" / "config.json").read_text())
    assert (config["architecture"], config["options"]) == ("my_deq:deq", {"num_classes": 10})
    evaluate = ["evaluate", "runs/own/best", "--suite=quick", "--limit=4", "--device=cpu", "--out=runs/quick"]
    assert run(*evaluate) == 0
    assert json.loads((folder / "runs" / "quick" / "manifest.json").read_text())["model"]["kind"] == "my_deq:deq"
    Image.new("L", (8, 8), 128).save("digit.png")
    assert run("predict", "runs/own/best", "digit.png") == 0

    (folder / "else").mkdir()
    monkeypatch.chdir(folder / "else")
    monkeypatch.syspath_prepend(str(folder))
    capsys.readouterr()
    predict = ["predict", "../runs/own/best", "../digit.png"]
    assert run(*predict) == 1
    assert "add --trust or --import my_deq" in error(capsys)
    assert run(*predict, "--trust") == 0
    assert run(*predict, "--import", "my_deq") == 0


@pytest.mark.parametrize("flags", [["--trust"], ["--import", "my_deq"]])
def test_the_explorer_begins_with_one_below_runs_if_trusted(folder, monkeypatch, flags):
    monkeypatch.delenv("ROBUSTDEQ_DATA", raising=False)  # with CIFAR-10 at hand it would begin with a model of that
    assert run("train", "--model.name", "my_deq:deq", "--out=else/runs/own", *QUICK, "1") == 0
    monkeypatch.chdir(folder / "else")
    monkeypatch.syspath_prepend(str(folder))
    explore = ["explore", "--attack=none", "--defence=none", "--export"]
    for words, model in (["refused"], "digits-nano-trades-random"), (["trusted", *flags], "runs/own/best"):
        assert run(*explore, *words) == 0
        assert json.loads((folder / "else" / words[0] / "case.json").read_text())["case"]["model"] == model


def test_a_registered_one_needs_its_module_once(folder):
    assert run("train", "--import", "my_deq", "--model.name=own-deq", "--out=run", *QUICK, "1") == 0
    Image.new("L", (8, 8), 128).save("digit.png")
    assert run("predict", "run/last", "digit.png") == 0


def test_its_own_dropout_and_statistics_are_the_same_when_a_run_resumes(folder):
    words = ["train", "--model.name=my_deq:deq", *QUICK]
    assert run(*words, "4", "--out=whole") == 0
    assert run(*words, "2", "--out=parts") == 0
    torch.rand(3)
    assert run(*words, "4", "--out=parts") == 0
    losses = [[row["loss"] for row in read_log(folder / name)] for name in ("whole", "parts")]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model.name=my_deq:dqe"], "my_deq:dqe: my_deq has no dqe; did you mean deq?"),
        (["--model.name=my_dqe:deq"], "my_dqe:deq: cannot import my_dqe"),
        (["--model.name=own-deq"], "unknown model 'own-deq'"),
        (["--model.name=my_deq:no_deq"], "my_deq:no_deq built a Linear; expected a robustdeq.DEQ"),
        (["--model.name=my_deq:other_classes"], "my_deq:other_classes: for 2 images of 10 classes the model gives a"),
        (["--model.name=my_deq:deq", "--model.options={pixels: 32}"], "my_deq:deq: the model fails on images (2, 1, 8"),
        (
            ["--model.name=my_deq:deq", "--model.options={depth: 2}"],
            "my_deq:deq has no option 'depth'; did you mean 'width'?",
        ),
        (["--import=my_deqs"], "my_deqs: cannot import my_deqs"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line_before_training(folder, capsys, words, message):
    assert run("train", "--out=run", *words, *QUICK, "1") == 1
    assert error(capsys).startswith(message)
    assert not (folder / "run" / "metrics.csv").exists()
