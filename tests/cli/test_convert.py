"""`robustdeq convert` makes checkpoints that compute what the released code did."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.cli.main import main

DATA = Path(__file__).parents[1] / "golden" / "data"


@pytest.fixture
def released():
    with np.load(DATA / "A_weights.npz") as arrays:
        weights = {k: torch.from_numpy(arrays[k]) for k in arrays.files}
    with np.load(DATA / "A_basic.npz") as arrays:
        basic = {k: arrays[k] for k in ("config_json", "x_uint8", "undef_logits")}
    return weights, json.loads(str(basic["config_json"])), basic


def check(folder, basic):
    model = rd.load(folder, dtype=torch.float64)
    x = torch.from_numpy(basic["x_uint8"]).double() / 255
    assert_close(model(x).detach(), torch.from_numpy(basic["undef_logits"][8]), rtol=0, atol=1e-8)


def test_a_saved_training_state_is_converted_with_its_configuration_file(released, tmp_path):
    weights, config, basic = released
    torch.save({"state_dict": {f"module.{k}": v for k, v in weights.items()}, "epoch": 3}, tmp_path / "model.pth.tar")
    (tmp_path / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    words = ["convert", str(tmp_path / "model.pth.tar"), "--out", str(tmp_path / "ours")]
    assert main([*words, "--config", str(tmp_path / "config.yaml")]) == 0
    check(tmp_path / "ours", basic)
    assert rd.load(tmp_path / "ours").metadata == {"dataset": "cifar10", "eps": 8 / 255}


def test_without_a_configuration_sizes_come_from_the_weights(released, tmp_path, capsys):
    _, _, basic = released
    words = ["convert", str(DATA / "A_weights.npz"), "--out", str(tmp_path / "ours"), "--groups", "4"]
    assert main(words) == 0
    assert "assumed" in capsys.readouterr().out
    check(tmp_path / "ours", basic)


class _Payload:
    def __reduce__(self):
        return print, ("executed",)


def test_a_file_that_would_execute_something_is_refused(tmp_path, capsys):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"state_dict": _Payload()}))
    assert main(["convert", str(tmp_path / "evil.pth"), "--out", str(tmp_path / "ours")]) == 1
    captured = capsys.readouterr()
    assert "cannot be read as weights only" in captured.err
    assert "executed" not in captured.out
    assert not (tmp_path / "ours").exists()


def test_a_missing_file_and_foreign_weights_are_one_clear_line(tmp_path, capsys):
    assert main(["convert", str(tmp_path / "none.pth"), "--out", str(tmp_path)]) == 1
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    assert main(["convert", str(tmp_path / "other.pth"), "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "no file" in lines[0]
    assert "not weights of the released MDEQ" in lines[1]


@pytest.mark.parametrize("name", ["weights.npz", "weights.safetensors", "weights.pth"])
def test_a_damaged_file_is_one_clear_line(tmp_path, capsys, name):
    (tmp_path / name).write_bytes(b"not weights at all")
    assert main(["convert", str(tmp_path / name), "--out", str(tmp_path / "ours")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read as weights only" in line


@pytest.mark.parametrize(("text", "message"), [("a: [", "not valid YAML"), ("[1, 2]", "expected a mapping")])
def test_a_bad_configuration_file_is_one_clear_line(tmp_path, capsys, text, message):
    (tmp_path / "config.yaml").write_text(text)
    words = ["convert", str(DATA / "A_weights.npz"), "--out", str(tmp_path / "ours")]
    assert main([*words, "--config", str(tmp_path / "config.yaml")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_weights_that_do_not_fit_name_what_to_check(tmp_path, capsys):
    assert main(["convert", str(DATA / "B_weights.npz"), "--out", str(tmp_path / "ours"), "--groups", "4"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "DOWNSAMPLE_TIMES" in line
