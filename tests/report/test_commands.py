"""The commands that a report prints, run as they are printed."""

import shlex

import pytest

import robustdeq
from robustdeq.cli.main import main
from robustdeq.evaluation import Store
from robustdeq.evaluation.store.manifest import SuiteRequest
from robustdeq.report import find_sources, write_report
from robustdeq.report.missing import missing_experiments
from tests.data.official import FOLDER, fake_files, write_folder
from tests.evaluation.predictors import images, small_deq
from tests.report.results import change, two_attacks


def commands(folder, which=""):
    """The arguments of all printed `robustdeq evaluate` commands that contain a word."""
    lines = [line for m in missing_experiments(find_sources([folder])) for line in m.command.split(" && ")]
    return [shlex.split(line)[1:] for line in lines if line.startswith("robustdeq evaluate ") and which in line]


def unfinished(folder):
    return [m.command for m in missing_experiments(find_sources([folder])) if m.item == "all"]


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("name", ["bare", "bare_deq"])
def test_commands_for_a_predictor_without_metadata_are_accepted(tmp_path, capsys, name, union):
    out = tmp_path / "my results"
    ckpt = f"tests.report.predictors:{name}"
    flags = ["--data=digits", "--eps=8/255", "--limit=3", "--device=cpu", *(["--union"] if union else [])]
    assert main(["evaluate", ckpt, *flags, "--suite=quick", f"--out={out}", "--budget=0"]) == 0
    printed = commands(out, ckpt)
    assert len(printed) >= 2
    for words in printed:
        into = [str(tmp_path / "other") if word == "OTHER" else word for word in words]
        assert main([*into, "--budget=0"]) == 0, capsys.readouterr()
    assert main([*printed[0], "--budget=1h"]) == 0, capsys.readouterr()  # the first one resumes the store
    assert Store(out).complete("pgd-ready" if name == "bare_deq" else "pgd-direct")


@pytest.mark.usefixtures("undrawn")
def test_commands_for_cifar10_name_the_data_folder_and_the_shipped_weights(tmp_path, monkeypatch, capsys):
    write_folder(tmp_path / "data" / FOLDER, fake_files(rows=250))  # of which a thousand are held out
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROBUSTDEQ_DATA", "nowhere")
    own = ["evaluate", "cifar10-tiny-trades", "--limit=2", "--device=cpu", "--out=s", "--budget=0"]
    assert main([*own, "--data-root=data"]) == 0
    printed = commands("s")
    trained = [m.item for m in missing_experiments(find_sources(["s"])) if "train --recipe" in m.command]
    assert set(trained) == {"Fig. 6"}  # other weights of the penalty do not ship
    assert {words[1] for words in printed} >= {"cifar10-tiny-trades", "cifar10-tiny-pgdat", "cifar10-tiny-resnet-pgdat"}
    assert all("--data-root=data" in words or words[words.index("--data-root") + 1] == "data" for words in printed)
    # of the store itself, of a defended model, and of one without dynamics; others differ in checkpoint or suite alone
    for kind in ("--limit", "--defence", "resnet"):
        words = next(words for words in printed if kind in " ".join(words))
        assert main([*words, "--budget=0"]) == 0, capsys.readouterr()
    index = write_report(["s"], "out")
    for name in ("index.html", "report.md"):
        assert "--data-root data: put the folder of your data there" in (index.parent / name).read_text()


@pytest.mark.usefixtures("undrawn")
def test_no_data_folder_is_named_for_embedded_data(tmp_path):
    two_attacks(tmp_path / "s")
    write_report([tmp_path / "s"], tmp_path / "out")
    assert "--data-root" not in (tmp_path / "out" / "report.md").read_text()


def test_a_store_made_in_python_is_resumed_by_a_python_call(tmp_path):
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


@pytest.mark.usefixtures("undrawn")
def test_a_stored_command_is_printed_resumed_as_typed_and_changed_only_in_what_is_new(tmp_path):
    kept = "robustdeq evaluate runs/some/best --data-root=/my/data"
    typed = f"{kept} --defence entropy --defence.steps=5 --aware --suite grid --sources a b --out 'my results'"
    store = two_attacks(tmp_path / "s", defended=True, keep=True, command=typed)
    store.path("pgd-ready", 0).unlink()
    assert unfinished(tmp_path) == [typed]
    found = {m.what: m.command for m in missing_experiments(find_sources([tmp_path]))}
    assert found["s: AutoAttack"] == f"{kept} --defence entropy --defence.steps=5 --suite autoattack --out {tmp_path}/s"
    (settings,) = [command for what, command in found.items() if "settings (T_f, R)" in what]
    assert settings == f"{kept} --suite settings --out {tmp_path}/s-settings"
    index = write_report([tmp_path], tmp_path / "out")
    assert f"- s, made by: `{typed}`" in (index.parent / "report.md").read_text()
    assert f'<dt>s</dt><dd><code class="command">{typed.replace(chr(39), "&#39;")}</code>' in index.read_text()


def test_the_last_stored_command_of_a_suite_resumes_it_with_further_sources(tmp_path):
    store = two_attacks(tmp_path / "a", defended=True)
    asked = [
        SuiteRequest(suite="grid"),
        SuiteRequest(suite="grid", command="robustdeq evaluate runs/some/best --out a"),
    ]
    change(store, asked=asked)
    two_attacks(tmp_path / "b", keep=True)
    (found,) = [m for m in missing_experiments(find_sources([tmp_path])) if m.what == "transfer to a from b"]
    assert found.command == f"robustdeq evaluate runs/some/best --out a --sources {tmp_path / 'b'}"
