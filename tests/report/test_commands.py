"""The commands that a report prints for what is missing, run as they are printed."""

import shlex

import pytest

import robustdeq
from robustdeq.cli.main import main
from robustdeq.evaluation import Store
from robustdeq.report import find_sources, write_report
from robustdeq.report.missing import missing_experiments
from tests.data.official import FOLDER, fake_files, write_folder
from tests.evaluation.predictors import images, small_deq
from tests.report.results import change, two_attacks


def commands(folder, which=""):
    """All of `evaluate` that hold a word, as arguments."""
    lines = [line for m in missing_experiments(find_sources([folder])) for line in m.command.split(" && ")]
    return [shlex.split(line)[1:] for line in lines if line.startswith("robustdeq evaluate ") and which in line]


def unfinished(folder):
    return [m.command for m in missing_experiments(find_sources([folder])) if m.item == "all"]


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("name", ["bare", "bare_deq"])
def test_those_for_a_predictor_that_says_nothing_of_itself_are_taken(tmp_path, capsys, name, union):
    out = tmp_path / "my results"
    ckpt = f"tests.report.predictors:{name}"
    flags = ["--data=digits", "--eps=8/255", "--limit=3", "--device=cpu", *(["--union"] if union else [])]
    assert main(["evaluate", ckpt, *flags, "--suite=quick", f"--out={out}", "--budget=0"]) == 0
    printed = commands(out, ckpt)
    assert len(printed) >= 2
    for words in printed:
        into = [str(tmp_path / "other") if word == "OTHER" else word for word in words]
        assert main([*into, "--budget=0"]) == 0, capsys.readouterr()
    assert main(printed[0]) == 0, capsys.readouterr()  # what goes on comes first
    assert Store(out).complete("pgd-ready" if name == "bare_deq" else "pgd-direct")


def test_those_for_cifar10_say_where_the_data_are_and_take_the_shipped_weights(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "data" / FOLDER, fake_files(rows=250))  # of which a thousand are held out
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUSTDEQ_DATA", "nowhere")
    own = ["evaluate", "cifar10-tiny-trades", "--limit=2", "--device=cpu", "--out=s", "--budget=0"]
    assert main([*own, "--data-root=data"]) == 0
    printed = commands("s")
    assert not [m.command for m in missing_experiments(find_sources(["s"])) if "train --recipe" in m.command]
    assert {words[1] for words in printed} >= {"cifar10-tiny-trades", "cifar10-tiny-pgdat", "cifar10-tiny-resnet-pgdat"}
    for words in printed:
        assert main([*words, "--budget=0"]) == 0, capsys.readouterr()
    index = write_report(["s"], "out")
    for name in ("index.html", "report.md"):
        assert "--data-root data: put the folder of your data there" in (index.parent / name).read_text()


def test_nothing_is_said_of_data_that_are_embedded(tmp_path):
    two_attacks(tmp_path / "s")
    write_report([tmp_path / "s"], tmp_path / "out")
    assert "--data-root" not in (tmp_path / "out" / "report.md").read_text()


def test_a_store_made_in_python_is_gone_on_with_in_python(tmp_path):
    x, y = images(4)
    budget = robustdeq.L2(0.123456789)
    robustdeq.evaluate(small_deq(), (x, y), "quick", tmp_path / "s", threat=budget, batch_size=2, budget=0.0)
    (call,) = unfinished(tmp_path / "s")
    known = {"robustdeq": robustdeq, "predictor": small_deq(), "x": x, "y": y}
    assert eval(call, known).complete
    assert not unfinished(tmp_path / "s")


def test_a_budget_is_printed_to_the_last_digit_and_with_its_norm(tmp_path):
    store = two_attacks(tmp_path / "s", eps=0.123456789)
    assert not [words for words in commands(tmp_path, "runs/some/best") if "--eps" in words]
    change(store, threat=robustdeq.L2(0.123456789))
    for words in commands(tmp_path, "runs/some/best"):
        assert words[words.index("--norm") + 1] == "L2"
        assert words[words.index("--eps") + 1] == "0.123456789"
