"""Every way a checkpoint can be wrong has one clear message; a failed save harms nothing."""

import errno
import json
import os
import pathlib
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import robustdeq as rd


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def fails(folder, message):
    with pytest.raises(rd.CheckpointError, match=message) as info:
        rd.load(folder)
    assert "\n" not in str(info.value).strip()


def test_no_folder(tmp_path):
    fails(tmp_path / "nowhere", r"no checkpoint at .*nowhere: expected a folder with config.json and model.safetensors")


def test_a_file_instead_of_a_folder(folder):
    fails(folder / "config.json", "is a file; a checkpoint is the folder")


def test_an_empty_folder(tmp_path):
    fails(tmp_path, "has no config.json: it is not a robustdeq checkpoint, or incomplete")


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    fails(folder, "has no model.safetensors: the checkpoint is incomplete")


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.999])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data)) if keep < 1 else keep])
    fails(folder, "model.safetensors is truncated or damaged")


def test_corrupt_weights_header(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[:200] = b"\xff" * 200
    path.write_bytes(data)
    fails(folder, "model.safetensors is truncated or damaged")


def test_a_pickle_in_place_of_the_weights_is_not_executed(folder):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(folder / "executed"),)

    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    fails(folder, "truncated or damaged")
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("text", ['{"format": "robust', "", "\x00\x01"])
def test_a_config_that_is_not_json(folder, text):
    (folder / "config.json").write_text(text)
    fails(folder, "config.json is not valid JSON .*: the file is damaged")


def test_a_config_that_is_not_text(folder):
    (folder / "config.json").write_bytes(b"\x80\xff\xfe\x81" * 9)
    fails(folder, "config.json is not valid JSON")


@pytest.mark.parametrize("content", ["[1, 2]", '{"model_type": "bert"}', "null"])
def test_a_config_of_something_else(folder, content):
    (folder / "config.json").write_text(content)
    fails(folder, "does not describe a robustdeq model; .*'robustdeq convert'")


@pytest.mark.parametrize("version", [2, None, "1"])
def test_a_format_version_from_the_future_or_of_nonsense(folder, version):
    edit(folder, format_version=version)
    fails(folder, f"format version {version}, this robustdeq reads up to 1: upgrade robustdeq")


def test_an_unregistered_architecture(folder):
    edit(folder, architecture="somebodys-deq")
    fails(folder, "unknown model 'somebodys-deq'.*registered with @robustdeq.register_model")


def test_an_unknown_option(folder):
    config = json.loads((folder / "config.json").read_text())
    edit(folder, options={**config["options"], "chanels": [4, 8]})
    fails(folder, "can be built: mdeq has no option 'chanels'; did you mean 'channels'")


def test_an_option_out_of_range(folder):
    config = json.loads((folder / "config.json").read_text())
    edit(folder, options={**config["options"], "groups": 3})
    fails(folder, "groups must be at least 2 and divide")


@pytest.mark.parametrize("key", ["architecture", "options"])
def test_a_config_that_lacks_an_entry(folder, key):
    config = json.loads((folder / "config.json").read_text())
    del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    fails(folder, f"it lacks '{key}'")


def test_an_unknown_component(folder):
    edit(folder, solver={"type": "Newton", "max_steps": 3})
    fails(folder, "unknown component 'Newton'; known are Broyden")


def test_a_component_with_an_unknown_option(folder):
    edit(folder, solver={"type": "Broyden", "max_step": 3})
    fails(folder, "max_step")


def test_a_component_out_of_range(folder):
    edit(folder, solver={"type": "Broyden", "max_steps": 0})
    fails(folder, "max_steps must be an integer of at least 1")


def test_an_unknown_setting(folder):
    edit(folder, temperature=2.0)
    fails(folder, "unknown setting 'temperature'")


def test_weights_of_another_architecture(folder):
    edit(folder, architecture="resnet", options={"widths": [4], "blocks": [1]}, solver=None)
    config = json.loads((folder / "config.json").read_text())
    for key in ("solver", "gradient", "tol", "readout"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    fails(folder, r"belong to another architecture than its config.json describes: \d+ missing .* \d+ unexpected")


def test_weights_of_other_shapes(folder):
    config = json.loads((folder / "config.json").read_text())
    edit(folder, options={**config["options"], "num_classes": 6})
    fails(folder, r"2 of another shape \(head.linear.bias is \(5,\), expected \(6,\)")


def test_missing_and_unexpected_weights(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["head.extra"] = weights.pop("head.linear.bias")
    save_file(weights, path)
    fails(folder, r"1 missing \(head.linear.bias\), 1 unexpected \(head.extra\)")


def test_a_deq_put_together_by_hand_cannot_be_saved(tmp_path):
    model = rd.DEQ(encoder=nn.Linear(2, 2), dynamics=nn.Bilinear(2, 2, 2), head=nn.Linear(2, 2))
    with pytest.raises(rd.CheckpointError, match=r"put together by hand.*@robustdeq.register_model"):
        model.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_metadata_that_is_not_json_cannot_be_saved(model, folder):
    model.metadata = {"when": object()}
    with pytest.raises(rd.CheckpointError, match="cannot be written as JSON"):
        model.save_pretrained(folder)
    rd.load(folder)


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("target", "name"), [(os, "fsync"), (os, "replace"), (pathlib.Path, "mkdir")])
def test_a_failed_save_leaves_the_old_checkpoint_whole_and_nothing_else(
    folder, make_mdeq, x, monkeypatch, target, name
):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(target, name, full_disk)
        with pytest.raises(OSError, match="No space left"):
            make_mdeq(seed=5).save_pretrained(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert rd.load(folder)(x).isfinite().all()


def test_a_disk_that_fills_up_between_the_two_files_leaves_the_old_checkpoint(folder, make_mdeq, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    sync, calls = os.fsync, []

    def second_fails(handle):
        calls.append(handle)
        full_disk() if len(calls) == 2 else sync(handle)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(OSError, match="No space left"):
        make_mdeq(seed=5).save_pretrained(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_first_save_that_fails_leaves_no_files(model, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_between_the_two_moves_leaves_the_new_checkpoint_whole(folder, make_mdeq, monkeypatch):
    move, calls = os.replace, []

    def second_fails(*paths):
        calls.append(paths)
        full_disk() if len(calls) == 2 else move(*paths)

    monkeypatch.setattr(os, "replace", second_fails)
    new = make_mdeq(seed=5, tol=0.5)
    with pytest.raises(OSError, match="No space left"):
        new.save_pretrained(folder)
    loaded = rd.load(folder)
    assert loaded.tol == 0.5
    for name, tensor in new.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_flipped_bytes_in_the_weights(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    for i in range(len(content) - 64, len(content)):
        content[i] ^= 0x55
    path.write_bytes(content)
    fails(folder, "checksum")


def test_a_setting_edited_by_hand_in_the_configuration_counts(folder):
    edit(folder, tol=0.125)
    assert rd.load(folder).tol == 0.125


@pytest.mark.parametrize(
    "setting",
    [{"solver": None}, {"tol": "abc"}, {"readout": "best"}, {"gradient": {"type": "Broyden"}}],
)
def test_a_setting_that_makes_no_sense(folder, setting):
    edit(folder, **setting)
    fails(folder, next(iter(setting)))
