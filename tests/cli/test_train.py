"""`robustdeq train` and `robustdeq recipes`."""

import json

import pytest

from robustdeq.cli.main import main
from robustdeq.cli.train import ending
from robustdeq.models.pretrained import shipped
from robustdeq.recipes import list_recipes, load_recipe
from robustdeq.training.trainer import Progress

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
        assert load_recipe(name).description in line
        assert (line.split()[1] == "shipped") == (name in shipped())


def test_train_writes_a_run_and_says_where(tmp_path, capsys):
    assert train(tmp_path / "run", *QUICK) == 0
    output = capsys.readouterr().out
    assert "best PGD accuracy on held-out images" in output
    assert (tmp_path / "run" / "best" / "model.safetensors").exists()
    assert (tmp_path / "run" / "last" / "config.json").exists()


def test_flags_reach_the_configuration_and_the_rest_stays_the_recipe_s(tmp_path):
    flags = ["--schedule.lr", "0.01", "--objective.eps=4/255", "--seed=7", "--model.options={dropout: 0.1}"]
    assert train(tmp_path, *QUICK, *flags) == 0
    config, recipe = config_of(tmp_path), load_recipe("digits-nano-trades-random")
    assert config["schedule"]["lr"] == 0.01
    assert config["objective"]["eps"] == "4/255"
    assert config["seed"] == 7
    assert config["model"] == {"name": "mdeq-nano", "options": {"dropout": 0.1}}
    assert config["schedule"]["epochs"] == recipe.schedule.epochs
    assert config["schedule"]["final_lr"] == recipe.schedule.final_lr
    assert config["objective"]["states"] == "random"
    assert config["data"]["flip"] is False


def test_a_user_s_own_file_is_a_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: digits-nano-pgdat\nseed: 3\n")
    assert train(tmp_path / "run", *QUICK, recipe=file) == 0
    assert config_of(tmp_path / "run")["seed"] == 3
    assert config_of(tmp_path / "run")["objective"]["kind"] == "pgdat"


def error_line(capsys):
    error = capsys.readouterr().err.strip()
    assert error.startswith("robustdeq: error: ")
    return error


def test_a_wrong_recipe_name_is_one_line_with_a_suggestion(tmp_path, capsys):
    assert train(tmp_path / "run", recipe="digits-nano-trade") == 1
    error = error_line(capsys)
    assert "\n" not in error
    assert "did you mean digits-nano-trades" in error
    assert not (tmp_path / "run").exists()


def test_missing_cifar10_is_an_error_with_the_two_ways_to_get_it(tmp_path, capsys):
    assert train(tmp_path / "run", f"--data-root={tmp_path / 'nowhere'}", recipe="cifar10-tiny-trades") == 1
    error = error_line(capsys)
    assert str(tmp_path / "nowhere") in error
    assert "Two ways to get it: (1)" in error
    assert "(2)" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [["--schedule.learning_rate=0.1"], ["--objective.kind=fgsm"], ["--shedule.lr=1"], ["--schedule.lr=fast"]]
)
def test_a_wrong_flag_is_refused(tmp_path, capsys, words):
    with pytest.raises(SystemExit) as stop:
        train(tmp_path / "run", *words)
    assert stop.value.code == 2
    assert words[0].split("=")[0].split(".")[-1] in capsys.readouterr().err


def test_another_configuration_in_the_same_folder_is_refused_with_the_difference(tmp_path, capsys):
    assert train(tmp_path, *QUICK) == 0
    capsys.readouterr()
    assert train(tmp_path, *QUICK, "--schedule.lr=0.123") == 1
    error = error_line(capsys)
    assert "schedule.lr: " in error
    assert "0.123 asked for" in error


@pytest.mark.parametrize(
    ("phase", "remaining", "words"),
    [
        ("pretrain", 5.0, "pretraining ends in 0:00:05"),
        ("pretrain", 0.0, "pretraining has ended"),
        ("train", 65.0, "0:01:05 left"),
    ],
)
def test_while_pretraining_nothing_is_said_of_when_all_ends(phase, remaining, words):
    now = Progress(step=3, total=20, phase=phase, loss=1.0, rate=2.0, remaining=remaining, clean=None, robust=None)
    assert ending(now) == words


def test_the_same_command_again_goes_on_from_the_end(tmp_path, capsys):
    assert train(tmp_path, *QUICK) == 0
    capsys.readouterr()
    assert train(tmp_path, *QUICK) == 0
    assert "nan" not in capsys.readouterr().out
