"""Defences of one's own on the command line: options from their signature, stored with their source, or one line."""

import json
import shutil
import sys

import pytest
import torch
from PIL import Image
from tests.examples.scripts import EXAMPLES

import robustdeq as rd
from robustdeq.cli.main import main
from robustdeq.evaluation import Store
from robustdeq.report.results.describe import Result


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with the example's defences and a checkpoint."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "extend" / "my_defences.py", tmp_path)
    (tmp_path / "wrong_defences.py").write_text("number = 3\ndef nothing(predictor): pass\ndef broken(p): {}['a']\n")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", solver=rd.Broyden(max_steps=2))
    model.metadata = {"dataset": "digits", "eps": 0.15}
    model.save_pretrained(tmp_path / "model")
    Image.new("L", (8, 8), 128).save("digit.png")
    yield tmp_path
    forget()


def forget():
    """Make this process as fresh as a new one."""
    for name in ("my_defences", "wrong_defences"):
        sys.modules.pop(name, None)


def run(verb, *words):
    forget()
    return main([verb, "model", *words])


def evaluate(*words):
    return run("evaluate", "--suite=quick", "--limit=4", "--device=cpu", "--out=out", *words)


def test_it_is_evaluated_with_options_and_not_mixed_with_a_changed_one(folder, capsys):
    words = ["--defence", "my_defences:Sharpen", "--defence.radius", "8/255", "--defence.every=1", "--aware"]
    assert evaluate(*words) == 0
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    config = manifest["predictors"]["deployed"]["config"]["predictor"]
    assert (config["kind"], config["every"], config["radius"]) == ("Sharpen", 1, 8 / 255)
    assert config["reference"] == "my_defences:Sharpen"
    assert [*manifest["predictors"]] == ["deployed", "base"]
    assert Result("mine", Store(folder / "out")).method == "baseline, my_defences:Sharpen"
    assert evaluate(*words) == 0
    source = folder / "my_defences.py"
    source.write_text(source.read_text() + "\n")
    capsys.readouterr()
    assert evaluate(*words) == 1
    assert "config.predictor.source: 'my_defences.py" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        (["--defence=my_defences:MeanOfStates", "--defence.states=2"], "MeanOfStates"),
        (["--defence=my_defences:Blur", "--defence.weight", "0.25", "--state=1"], "EarlyState"),
    ],
)
def test_a_readout_and_any_module_around_a_predictor_predict(folder, capsys, words, inside):
    assert run("predict", "digit.png", "--json", *words) == 0
    assert json.loads(capsys.readouterr().out)[0]["class"] is not None
    assert evaluate(*words) == 0
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert manifest["predictors"]["deployed"]["config"]["predictor"]["kind"] == inside


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--defence=my_defences:Shrapen"], "my_defences:Shrapen: my_defences has no Shrapen; did you mean Sharpen?"),
        (["--defence=my_defence:Sharpen"], "my_defence:Sharpen: cannot import my_defence"),
        (
            ["--defence=my_defences:Sharpen", "--defence.radios=1"],
            "--defence my_defences:Sharpen has no option 'radios'; did you mean 'radius'?",
        ),
        (
            ["--defence=my_defences:MeanOfStates", "--defence.states=two"],
            "--defence my_defences:MeanOfStates: states: expected a whole number, got two",
        ),
        (["--defence=entrpy"], "--defence: expected none, entropy or package.module:Class, got entrpy; did you mean"),
        (["--defence=wrong_defences:number"], "--defence wrong_defences:number is a int; expected a class"),
        (
            ["--defence=wrong_defences:nothing"],
            "--defence wrong_defences:nothing made a NoneType; expected a predictor",
        ),
        (["--defence=wrong_defences:broken"], "--defence wrong_defences:broken: it fails (KeyError: 'a')"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(folder, capsys, words, message):
    assert run("predict", "digit.png", *words) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].removeprefix("robustdeq: error: ").startswith(message)
