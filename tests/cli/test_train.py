"""`robustdeq train` and `robustdeq recipes`."""

import json

import pytest

from robustdeq.cli.main import main
from robustdeq.cli.train import describe_end
from robustdeq.models.pretrained import shipped
from robustdeq.recipes import list_recipes, load_recipe, read_recipe

QUICK = [
    "--device=cpu",
    "--schedule.max_steps=2",
    "--schedule.pretrain_steps=1",
    "--schedule.batch_size=10",
    "--objective.steps=1",
    "--validation.images=10",
    "--validation.steps=1",
]


def train(out, *words, recipe="digits-nano-trades-random"):
    return main(["train", f"--recipe={recipe}", f"--out={out}", *words])


def config_of(out):
    return json.loads((out / "run.json").read_text())["config"]


def test_recipes_lists_every_recipe_with_its_cost(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in list_recipes():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert read_recipe(name)["description"] in line
        assert (line.split()[1] == "shipped") == (name in shipped())


def test_a_run_is_written_resumed_and_refused_to_another_configuration(tmp_path, capsys):
    out = tmp_path / "run"
    assert train(out, *QUICK) == 0
    assert f"{out}/best: best PGD accuracy on held-out images" in capsys.readouterr().out
    assert (out / "best" / "model.safetensors").exists()
    assert (out / "last" / "config.json").exists()

    assert train(out, *QUICK) == 0
    assert "nan" not in capsys.readouterr().out

    assert train(out, *QUICK, "--schedule.lr=0.123") == 1
    error = error_of(capsys)
    assert "schedule.lr: " in error
    assert "0.123 asked for" in error


def test_flags_go_before_a_user_s_own_recipe_file_and_its_base(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: digits-nano-pgdat-random\nseed: 3\ncheckpoint_every: 50\n")
    flags = ["--schedule.lr", "0.01", "--objective.eps=4/255", "--seed=7", "--model.options={dropout: 0.1}"]
    assert train(tmp_path / "run", *QUICK, *flags, recipe=file) == 0
    config, base = config_of(tmp_path / "run"), load_recipe("digits-nano-pgdat-random")
    assert config["schedule"]["lr"] == 0.01
    assert config["objective"]["eps"] == "4/255"
    assert config["seed"] == 7
    assert config["checkpoint_every"] == 50
    assert config["model"] == {"name": "mdeq-nano", "options": {"dropout": 0.1}}
    assert config["schedule"]["epochs"] == base.schedule.epochs
    assert config["schedule"]["final_lr"] == base.schedule.final_lr
    assert (config["objective"]["kind"], config["objective"]["states"]) == ("pgdat", "random")
    assert config["data"]["flip"] is False


def error_of(capsys):
    error = capsys.readouterr().err.strip()
    assert error.startswith("robustdeq: error: ")
    return error


@pytest.mark.parametrize(
    ("recipe", "message"),
    [("digits-nano-trade", "did you mean digits-nano-trades"), ("cifar10-tiny-trades", "Two ways to get it: (1)")],
)
def test_a_run_that_cannot_start_leaves_no_folder(tmp_path, capsys, recipe, message):
    assert train(tmp_path / "run", f"--data-root={tmp_path / 'nowhere'}", recipe=recipe) == 1
    error = error_of(capsys)
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("phase", "remaining", "words"),
    [
        ("pretrain", 5.0, "pretraining ends in 0:00:05"),
        ("pretrain", 0.0, "pretraining has ended"),
        ("train", 65.0, "0:01:05 left"),
    ],
)
def test_during_pretraining_only_its_own_end_is_foretold(phase, remaining, words):
    assert describe_end(phase, remaining) == words
