"""A checkpoint remembers its data root as it was given, and evaluate says which one it uses."""

import json
from pathlib import Path

import pytest
from PIL import Image

import robustdeq as rd
from robustdeq.cli.arguments.checkpoint import Checkpoint, data_root_of
from robustdeq.cli.main import main
from robustdeq.data import load_dataset
from robustdeq.models.pretrained import shipped


@pytest.mark.long
def test_image_folders_are_trained_on_and_found_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    digits = load_dataset("digits")
    for part, images, count in (("train", digits.train, 60), ("test", digits.test, 12)):
        for k in range(count):
            file = Path("pets") / part / f"class{int(images.labels[k]) % 2}" / f"{k}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images.pixels[k, 0].numpy()).save(file)
    words = ["--data-root=pets", "--data.name=folder", "--data.options.size=8", "--data.options.channels=1"]
    steps = ["--schedule.steps=2", "--schedule.batch_size=20", "--schedule.pretrain_steps=1", "--device=cpu"]
    assert main(["train", "--recipe=digits-nano-trades", "--out=runs/pets", *words, *steps]) == 0
    metadata = rd.load("runs/pets/best").metadata
    assert (metadata["data_root"], metadata["classes"]) == ("pets", ["class0", "class1"])
    capsys.readouterr()
    evaluate = ["evaluate", "runs/pets/best", "--suite=quick", "--limit=4", "--device=cpu"]
    assert main([*evaluate, "--out=runs/results"]) == 0
    assert "data: folder in pets, as the checkpoint was trained\n" in capsys.readouterr().out
    Path("pets").rename("moved")
    assert main([*evaluate, "--out=runs/again"]) == 1
    assert "was trained on folder in pets, which is not here; say where it is by --data-root" in capsys.readouterr().out
    assert main([*evaluate, "--out=runs/again", "--data-root=moved"]) == 0
    assert "data: folder in moved\n" in capsys.readouterr().out


def test_what_is_given_comes_before_what_is_remembered(tmp_path, monkeypatch):
    said = []
    checkpoint = Checkpoint(name="mine", predictor=None, dataset="cifar10", data_root=str(tmp_path))
    monkeypatch.delenv("ROBUSTDEQ_DATA", raising=False)
    assert data_root_of(checkpoint, "cifar10", Path("given"), said.append) == Path("given")
    assert data_root_of(checkpoint, "cifar10", None, said.append) == tmp_path
    assert data_root_of(checkpoint, "folder", None, said.append) is None  # another data set
    monkeypatch.setenv("ROBUSTDEQ_DATA", "elsewhere")
    assert data_root_of(checkpoint, "cifar10", None, said.append) is None  # the loader reads the variable
    assert said == [
        "data: cifar10 in given",
        f"data: cifar10 in {tmp_path}, as the checkpoint was trained",
        "data: cifar10 in elsewhere (ROBUSTDEQ_DATA)",
    ]


def test_shipped_checkpoints_hold_no_path_of_a_machine():
    for folder in shipped().values():
        root = json.loads((folder / "config.json").read_text())["metadata"].get("data_root", "data")
        assert not Path(root).is_absolute()
