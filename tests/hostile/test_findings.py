"""What broke it once: each case is one line that says what was wrong, before anything is computed or allocated."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import robustdeq as rd
from robustdeq.cli import recipes
from robustdeq.cli.arguments.parser import verb_parser
from robustdeq.cli.main import main
from robustdeq.evaluation.store.files import Origin, as_parquet, as_safetensors, read_images, read_parquet
from robustdeq.host.seals import with_comment
from robustdeq.host.terminal import printable
from robustdeq.host.yaml_files import YamlError, read_yaml
from robustdeq.recipes import read_recipe
from robustdeq.threat import number
from robustdeq.training.checkpoint import TrainingState, load_state, record_start, save_state
from robustdeq.training.logs import read_log


@pytest.fixture
def nano(tmp_path):
    """The folder of a checkpoint."""
    model = rd.create_model("mdeq-nano")
    model.metadata = {"dataset": "digits", "eps": 0.15}
    model.save_pretrained(tmp_path / "ckpt")
    return tmp_path / "ckpt"


def one_line(capsys, *words):
    """The only line on standard error of a command that fails."""
    capsys.readouterr()
    try:
        assert main([str(word) for word in words]) == 1
    except SystemExit as stop:
        assert stop.code == 2  # noqa: PT017
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("robustdeq: error: ")
    return line.removeprefix("robustdeq: error: ")


def test_a_radius_that_is_no_number_is_refused_at_once(nano, tmp_path, capsys):
    for eps in ("1e999", "1e99999999", "-1e99999999", "nan", "inf", "8/0", "9" * 5000, "1/" + "9" * 5000):
        said = one_line(capsys, "evaluate", nano, "--out", tmp_path / "s", f"--eps={eps}")
        assert "--eps must be a number or a fraction such as 8/255" in said
        assert len(said) < 250


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, True, "inf", None, [1]])
def test_no_budget_is_infinite(value):
    with pytest.raises(ValueError, match="must be a number or a fraction"):
        number(value)


def edited(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    weights = folder / "model.safetensors"  # as if both had been written so
    from safetensors.torch import load_file, save_file

    save_file(load_file(weights), weights)
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": []}, "options: expected a mapping, got []"),
        ({"metadata": [1]}, "metadata: expected a mapping"),
        ({"options": {"downsample": 10**12}}, "downsample must be a whole number up to 16"),
        ({"options": {"channels": [2**40, 2**41], "head_channels": [1, 1]}}, "expected whole numbers up to 1,048,576"),
        ({"options": {"channels": [2**19, 2**19], "head_channels": [8, 16]}}, "of another shape"),
        ({"options": {"num_classes": "ten"}}, "num_classes: expected whole numbers"),
        ({"options": {"channels": 5}}, "int"),
        ({"solver": {"type": "Broyden", "max_steps": 10**9}}, "max_steps is 1,000,000,000, the most is 10,000"),
        ({"gradient": {"type": "Phantom", "steps": 10**9}}, "steps is 1,000,000,000"),
        ({"architecture": ["mdeq"]}, "config.json"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_before_anything_is_allocated(nano, capsys, changes, said):
    assert said in one_line(capsys, "predict", edited(nano, **changes), "x.png")


def test_images_of_a_size_that_no_memory_holds_are_refused(nano, capsys):
    metadata = {"dataset": "mine", "eps": 0.1, "image_shape": [1, 1000000, 1000000]}
    said = one_line(capsys, "predict", edited(nano, metadata=metadata), "x.png")
    assert "image_shape must be three whole numbers" in said


@pytest.mark.parametrize("content", [b"[]", b"5", b'{"resumed": [1]}', b"{", b"[" * 100_000])
def test_a_damaged_run_json_is_named(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"run.json is damaged"):
        record_start(tmp_path, {}, {}, 3)


def test_no_flipped_bit_of_a_training_state_is_resumed(tmp_path):
    state = TrainingState(
        step=3, model={"w": torch.arange(64.0)}, optimizer={}, average=None, best=0.5, config={"seed": 0}
    )
    save_state(tmp_path, state)
    content = (tmp_path / "state.pt").read_bytes()
    for bit in np.random.default_rng(0).choice(8 * len(content), 200, replace=False):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "state.pt").write_bytes(changed)
        try:
            found = load_state(tmp_path)
        except ValueError as error:
            assert "state.pt" in str(error)  # noqa: PT017
        else:  # in the seal's own name
            assert found is not None
            assert (found.step, found.best) == (3, 0.5)
            assert torch.equal(found.model["w"], state.model["w"])
            assert abs(bit // 8 - content.rindex(b"robustdeq-sha256:")) <= 32


def test_a_training_state_without_a_checksum_is_resumed_and_one_that_is_none_is_not(tmp_path):
    whole = {"step": 3, "model": {}, "optimizer": {}, "average": None, "best": 0.5, "config": {}}
    torch.save(whole, tmp_path / "state.pt")
    state = load_state(tmp_path)
    assert state is not None
    assert state.step == 3
    for changes in ({"step": "3"}, {"step": -1}, {"config": []}, {"unknown": 1}):
        buffer = io.BytesIO()
        torch.save({**whole, **changes}, buffer)
        (tmp_path / "state.pt").write_bytes(with_comment(buffer.getvalue()))
        with pytest.raises(ValueError, match=r"state.pt cannot be read"):
            load_state(tmp_path)


def test_a_damaged_log_is_named(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,epoch,validation_clean,validation_pgd\n1,0,a,b\n")
    with pytest.raises(ValueError, match=r"metrics.csv is damaged"):
        read_log(tmp_path)


def bomb():
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    return "l0: &l0 [x, x, x]\n" + levels


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(), "more than 20,000 values"),
        ("a: &a [*a]", "an alias stands for something that contains it"),
        ("a: 1\nb: 2\na: 3\n", "line 3: a stands there twice"),
        ("a: {b: 1, b: 2}", "b stands there twice"),
        ("[" * 5000, "nested deeper than 50 levels"),
        ("a: " + "9" * 5000, "is not valid YAML"),
        ("a: 2020-99-99", "is not valid YAML"),
        ("a: !!python/object:os.system x", "is not valid YAML"),
        ("? [1, 2]\n: 3\n? {a: 1}\n: 4\n", "is not valid YAML"),
        ("#" * 2**21, "more than a YAML file"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
    ],
)
def test_yaml_that_unpacks_contains_itself_or_repeats_a_key_is_refused(tmp_path, text, said):
    path = tmp_path / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(YamlError, match=r"x\.yaml") as error:
        read_yaml(path)
    assert said in str(error.value)


def test_yaml_may_repeat_itself_with_aliases(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1}\nc: *a\nd: {<<: *a, b: 2, e: 3}\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 2, "e": 3}}


def test_recipes_and_suites_that_contain_themselves_are_refused(nano, tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ValueError, match="extends itself"):
        read_recipe("a.yaml", tmp_path)
    (tmp_path / "s.yaml").write_text(f"include: [{tmp_path}/t.yaml]\n")
    (tmp_path / "t.yaml").write_text(f"include: {tmp_path}/s.yaml\n")
    said = one_line(capsys, "evaluate", nano, "--suite", tmp_path / "s.yaml", "--out", tmp_path / "out")
    assert "includes itself, by way of" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('keep_images: "no"\ninclude: quick', "keep_images: expected true or false, got 'no'"),
        ("attacks: 5", "attacks: expected a list, got 5"),
        ("include: [5]", "include: expected names of suites or files"),
        ("attacks: [{name: a, attack: pgd, options: {step_size: .inf}}]", "step_size must be a number"),
        ("attacks: [{name: a, attack: apgd, options: {rho: .nan}}]", "rho: expected a number"),
        ("attacks: [{name: a, attack: pgd, options: {steps: 1000000000}}]", "steps: expected a number up to"),
        ("attacks: [{name: a, attack: pgd, oracle: unrolled, oracle_options: {steps: 1000000}}]", "up to 10,000"),
        ('attacks: [{name: a, attack: pgd, every_image: "no"}]', "every_image: expected true or false, got 'no'"),
        ("attacks: [{name: a, attack: pgd, limit: 1.5}]", "limit: expected a number of images"),
        ("attacks: [{name: a, attack: pgd, eps: 1e999}]", "eps must be a number"),
        ("attacks: [{name: [1], attack: pgd}]", "an attack's name is"),
        ("attacks: [{name: a, attack: pgd, oracle_options: 3}]", "oracle_options: expected a mapping"),
    ],
)
def test_values_of_a_suite_that_mean_nothing_are_refused_with_its_name(nano, tmp_path, capsys, text, said):
    (tmp_path / "s.yaml").write_text(text)
    line = one_line(capsys, "evaluate", nano, "--suite", tmp_path / "s.yaml", "--out", tmp_path / "out")
    assert said in line
    assert str(tmp_path / "s.yaml") in line
    assert not (tmp_path / "out").exists()


def test_what_nobody_foresaw_is_one_line_and_a_traceback_only_if_asked_for(monkeypatch, capsys):
    for error in (KeyError("x"), ZeroDivisionError("z"), AssertionError(), UnicodeDecodeError("utf-8", b"", 0, 1, "?")):

        def fails(error=error):
            raise error

        monkeypatch.setattr(recipes, "run", lambda: fails())
        said = one_line(capsys, "recipes")
        assert type(error).__name__ in said
        assert "ROBUSTDEQ_TRACEBACK=1 shows where" in said
        monkeypatch.setenv("ROBUSTDEQ_TRACEBACK", "1")
        with pytest.raises(type(error)):
            main(["recipes"])
        monkeypatch.delenv("ROBUSTDEQ_TRACEBACK")


def test_an_error_that_ctrl_c_caused_inside_an_import_is_an_interruption(monkeypatch, capsys):
    def importing():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise ImportError("numpy could not be imported") from stop

    monkeypatch.setattr(recipes, "run", importing)
    assert main(["recipes"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_escapes_of_an_error_do_not_reach_the_terminal(capsys):
    said = one_line(capsys, "evaluate", "\x1b[2J\x07\x9b31mckpt", "--out", "x")
    assert r"\x1b[2J\x07\x9b31mckpt" in said
    assert printable("ä\x1b[31m\u202e\udcff\n") == "ä\\x1b[31m\\u202e\\udcff\n"


def test_a_reader_who_has_seen_enough_ends_a_command_quietly():
    command = [sys.executable, "-m", "robustdeq.cli.main", "--help"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_seal_whose_own_name_is_damaged_is_broken(tmp_path):
    state = TrainingState(
        step=3, model={"w": torch.arange(64.0)}, optimizer={}, average=None, best=0.5, config={"seed": 0}
    )
    save_state(tmp_path, state)
    path = tmp_path / "state.pt"
    path.write_bytes(path.read_bytes().replace(b"robustdeq-sha256:", b"robustdeq-sia256:"))
    with pytest.raises(ValueError, match=r"state.pt is damaged"):
        load_state(tmp_path)
    origin = Origin("pgd", 0)
    for name, content in (
        ("rows", as_parquet(pl.DataFrame({"image": [1]}), {"image": pl.Int64()}, origin)),
        ("images", as_safetensors((torch.tensor([0]), torch.zeros(1, 1, 2, 2)), origin)),
    ):
        (tmp_path / name).write_bytes(content.replace(b"robustdeq-sha256:", b"robustdeq-sia256:"))
    with pytest.raises(ValueError, match="rows is damaged"):
        read_parquet(tmp_path / "rows", {"image": pl.Int64()}, origin)
    with pytest.raises(ValueError, match="images is damaged"):
        read_images(tmp_path / "images", origin)


def test_pipes_devices_and_broken_links_are_refused_instead_of_waited_for(nano, tmp_path, capsys):
    os.mkfifo(tmp_path / "s.yaml")
    said = one_line(capsys, "evaluate", nano, "--suite", tmp_path / "s.yaml", "--out", tmp_path / "out")
    assert said == f"{tmp_path / 's.yaml'} is not a regular file"
    (nano / "config.json").unlink()
    (nano / "config.json").symlink_to("/dev/zero")
    assert "config.json is not a regular file" in one_line(capsys, "predict", nano, "x.png")
    (nano / "config.json").unlink()
    (nano / "config.json").symlink_to("config.json")
    assert "config.json is a broken link" in one_line(capsys, "predict", nano, "x.png")


@pytest.mark.parametrize("state", ["²", "9" * 5000, "-9", "0", "٣"])
def test_a_state_that_the_model_has_not_is_refused_in_a_sentence(nano, tmp_path, capsys, state):
    said = one_line(capsys, "evaluate", nano, "--out", tmp_path / "s", f"--state={state}")
    assert "must be a number or 'final'" in said or "the model has states 1 to 8" in said
    assert len(said) < 200


def test_a_number_that_no_float_holds_is_refused(capsys):
    assert "a number on the command line is larger" in one_line(capsys, "train", f"--schedule.lr={10**400}")
    with pytest.raises(ValueError, match="step_size must be a number or a fraction"):
        rd.EntropyReduction(rd.create_model("mdeq-nano"), step_size=10**400)
    with pytest.raises(ValueError, match="step_size must be a number or a fraction"):
        rd.PGD(rd.Linf(0.1), step_size=10**400)


def test_words_that_look_like_the_stand_ins_of_odd_ones_are_taken_as_they_are():
    words = ["ckpt", "--out=x\udcff", "--base", "\ue0005"]
    found = verb_parser("evaluate").parse_words(words)
    assert (os.fspath(found["out"]), found["base"]) == ("x\udcff", "\ue0005")
    assert verb_parser("predict").parse_words(["c", "\ue000x"])["image"] == [Path("\ue000x")]
