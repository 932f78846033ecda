"""Mistakes on the command line: one readable line, an exit code, a suggestion, no traceback."""

from types import SimpleNamespace

import pytest

import robustdeq as rd
from robustdeq.cli.main import main


def one_line(capsys, words):
    """The exit code and the only line of standard error."""
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("robustdeq: error: ")
    return code, line.removeprefix("robustdeq: error: ")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "no command trian; did you mean train?"),
        (["bench", "--rouns", "3"], "bench has no flag --rouns; did you mean --rounds or --rows?"),
        (
            ["train", "--recipe=a", "--out=b", "--shedule.lr=1"],
            "train has no flag --shedule.lr; did you mean --schedule.lr?",
        ),
        (["train", "--recipe=a", "--out=b", "--lr=1"], "train has no flag --lr; did you mean --schedule.lr?"),
        (["train", "--recipe=a", "--out=b", "--schedule.lr=fast"], "--schedule.lr: expected a number, got fast"),
        (["train", "--recipe=a", "--out=b", "--seed=1.5"], "--seed: expected a whole number, got 1.5"),
        (
            ["train", "--recipe=a", "--out=b", "--objective.kind=trade"],
            "--objective.kind: expected one of standard, pgdat, trades, got trade; did you mean trades?",
        ),
        (
            ["train", "--recipe=a", "--out=b", "--schedule.batch-size=x"],
            "--schedule.batch_size: expected a whole number, got x",
        ),
        (["evaluate", "a", "--out=b", "--batch_size=x"], "--batch-size: expected a whole number, got x"),
        (["evaluate", "a", "--out=b", "--defence.every=x"], "--defence.every: expected a whole number, got x"),
        (
            ["evaluate", "a", "--out=b", "--batch-sise=3"],
            "evaluate has no flag --batch-sise; did you mean --batch-size or --base?",
        ),
        (["train", "--recipe=a"], "train needs --out; 'robustdeq train --help' says more"),
        (["convert"], "convert needs FILE and --out; 'robustdeq convert --help' says more"),
        (["predict", "a", "b", "--state=x"], "--state: expected a whole number or final, got x"),
        (
            ["train", "--recipe=a", "--out", ""],
            "there is nothing after --out: is a variable of the shell not set?",
        ),
        (["quickstart", "--out="], "there is nothing after --out=: is a variable of the shell not set?"),
        (
            ["bench", "everything"],
            "SUBJECT: expected one of core, train, defence, evaluate, got everything; choose one of these",
        ),
        (["train", "--recipe=a", "--out=b", "--model.options=3"], "--model.options: expected a mapping, got 3"),
        ([], "say what to do; 'robustdeq --help' lists the commands"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_a_suggestion(capsys, words, line):
    assert one_line(capsys, words) == (2, line)


def test_a_command_unlike_any_other_is_answered_with_all_of_them(capsys):
    code, line = one_line(capsys, ["qqq"])
    assert code == 2
    assert line.startswith("no command qqq; there are ")
    assert {"train", "predict", "bench"} <= set(line.replace(",", "").split())


def test_a_mistyped_recipe_is_answered_with_the_closest(capsys, tmp_path):
    code, line = one_line(capsys, ["train", "--recipe=digits-nano-trade", f"--out={tmp_path / 'x'}"])
    assert code == 1
    assert "did you mean digits-nano-trades" in line


def test_missing_data_are_an_error_that_says_where_it_looked_and_how_to_get_them(capsys, tmp_path):
    root = tmp_path / "nowhere"
    words = ["train", "--recipe=cifar10-tiny-trades", f"--out={tmp_path / 'x'}", f"--data-root={root}"]
    code, line = one_line(capsys, words)
    assert code == 1
    assert f"no CIFAR-10 at {root}" in line
    assert "download_cifar10" in line


def test_a_damaged_or_mistyped_checkpoint_is_one_line(capsys, tmp_path):
    folder = tmp_path / "ckpt"
    rd.create_model("mdeq-nano").save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    code, line = one_line(capsys, ["predict", str(folder), "a.png"])
    assert code == 1
    assert "model.safetensors is truncated or damaged" in line
    code, line = one_line(capsys, ["predict", str(tmp_path / "ckp"), "a.png"])
    assert code == 1
    assert line.endswith(f"did you mean {folder}?")


def test_a_current_folder_that_has_been_deleted_is_named_as_what_is_missing(capsys, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    line = "the current folder has been deleted; change to one that exists"
    assert one_line(capsys, ["recipes"]) == (1, line)


def test_an_entry_of_a_dictionary_can_be_given_as_a_flag(capsys, tmp_path):
    words = ["train", "--recipe=digits-nano-trade", f"--out={tmp_path / 'x'}", "--model.options.dropout=0.1"]
    _, line = one_line(capsys, words)
    assert "no recipe" in line  # and not "no flag"


def test_a_device_that_is_not_here_is_named_beside_those_that_are(capsys):
    code, line = one_line(capsys, ["selftest", "--device", "cuda:7"])
    assert code == 1
    assert line.startswith("no device 'cuda:7': torch")
    assert "can use auto, cpu" in line


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--recipe=digits-nano-trades"],
        ["evaluate", "tests.evaluation.predictors:small_deq"],
        ["report", "."],
        ["quickstart"],
        ["convert", "a.pth"],
    ],
)
def test_out_must_be_a_folder_or_a_place_for_one(capsys, tmp_path, words):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "below"):
        assert one_line(capsys, [*words, f"--out={out}"]) == (1, f"{file} is a file; --out needs a folder")
    (tmp_path / "link").symlink_to("nowhere")
    assert "is a broken link" in one_line(capsys, [*words, f"--out={tmp_path / 'link'}"])[1]
    assert file.read_text() == "mine"


def test_out_must_be_writable(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    code, line = one_line(capsys, ["train", "--recipe=a", f"--out={tmp_path / 'a' / 'b'}"])
    assert (code, line) == (1, f"{tmp_path} cannot be written into; --out needs a folder that can")


def test_bench_checks_where_its_records_go_before_it_measures(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("robustdeq.cli.bench.core.core", None)
    (tmp_path / "file").write_text("")
    for json_file, message in (
        (tmp_path / "file" / "a.json", f"{tmp_path / 'file'} is a file; --json needs a folder"),
        (tmp_path, f"{tmp_path} is a folder; --json needs a file"),
    ):
        assert one_line(capsys, ["bench", "core", f"--json={json_file}"]) == (1, message)


def test_names_in_the_result_of_benchmark_do_not_act_on_the_terminal(monkeypatch, capsys):
    result = SimpleNamespace(table=lambda: "a model named \x1b[31mred")
    monkeypatch.setattr("robustdeq.evaluation.benchmark", lambda *given, **options: result)
    assert main(["benchmark", "digits-nano-trades-random"]) == 0
    shown = capsys.readouterr().out
    assert "a model named \\x1b[31mred" in shown
    assert "\x1b" not in shown
