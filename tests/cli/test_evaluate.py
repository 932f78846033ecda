"""`robustdeq evaluate`."""

import itertools
import json

import pytest
import torch
from PIL import Image
from tests.evaluation import predictors
from tests.evaluation.predictors import small_deq

import robustdeq as rd
from robustdeq.cli.arguments.checkpoint import Checkpoint
from robustdeq.cli.arguments.deploy import deploy
from robustdeq.cli.arguments.parser import verb_parser
from robustdeq.cli.evaluate import duration
from robustdeq.cli.main import main
from robustdeq.defences import EarlyState, EntropyReduction

QUICK = ["--limit=6", "--shard-size=3", "--device=cpu"]
SMALL = "tests.evaluation.predictors:small_deq"


def run(*words, ckpt=SMALL):
    return main(["evaluate", ckpt, *map(str, words)])


def manifest(out):
    return json.loads((out / "manifest.json").read_text())


def test_a_function_s_predictor_is_evaluated_at_its_last_state_and_the_table_shown(tmp_path, capsys):
    assert run(f"--out={tmp_path}", *QUICK, "--keep_images") == 0
    output = capsys.readouterr().out
    assert "clean" in output
    assert "pgd-ready" in output
    assert "union" in output
    found = manifest(tmp_path)
    assert found["model"]["config"]["kind"] == "EarlyState"
    assert found["model"]["config"]["state"] == 3  # the solver has no eighth state
    assert found["data"] | {"sha256": None} == {
        "name": "digits", "split": "test", "images": 6, "limit": 6, "sha256": None,
    }  # fmt: skip
    assert found["threat"] == {"norm": "Linf", "eps": 0.05}
    assert found["shard_size"] == 3
    (asked,) = found["asked"]
    words = f"robustdeq evaluate {SMALL} --out={tmp_path} --limit=6 --shard-size=3 --device=cpu --keep_images"
    assert (asked["command"], asked["keep_images"]) == (words, True)


def test_a_checkpoint_carries_data_and_eps_and_the_flags_reach_the_defence(tmp_path):
    with torch.random.fork_rng(devices=[]):
        model = rd.create_model("mdeq-nano", channels=(4, 8), head_channels=(2, 4), final_channels=8)
    model.metadata = {"dataset": "digits", "eps": 0.1}
    model.save_pretrained(tmp_path / "model")
    words = ["--defence=entropy", "--defence.variant=released", "--defence.every=4", "--defence.steps=1", "--state=2"]
    words += ["--defence.direction=gradient", "--defence.resolve=true", "--defence.history=restarted"]
    words += ["--defence.handed_on=iterate", "--defence.final_input=purified"]
    assert run(f"--out={tmp_path / 'out'}", "--limit=2", *words, ckpt=str(tmp_path / "model")) == 0
    config = manifest(tmp_path / "out")["model"]["config"]
    assert (config["kind"], config["state"]) == ("EarlyState", 2)
    defence = config["predictor"]
    assert (defence["kind"], defence["variant"], defence["every"]) == ("EntropyReduction", "released", 4)
    switches = {"history": "restarted", "handed_on": "iterate", "final_input": "purified"}
    assert defence["switches"] == {"direction": "gradient", "resolve": True, **switches}
    descent = defence["descent"]
    assert (descent["steps"], descent["radius"], descent["direction"]) == (1, 0.1, "gradient")
    assert list(manifest(tmp_path / "out")["predictors"]) == ["deployed", "base"]
    assert manifest(tmp_path / "out")["threat"]["eps"] == 0.1


def test_a_predictor_is_read_at_state_8_unless_it_is_defended_or_reads_a_state_already():
    model = small_deq()
    assert deploy(model, defence=None, state="final") is model
    assert deploy(model, defence=None, state=None).state == 3
    early = EarlyState(model, state=1)
    assert deploy(early, defence=None, state=None) is early
    defended = EntropyReduction(model)
    assert deploy(defended, defence=None, state=None) is defended
    both = deploy(model, defence={"every": 1}, state="2")
    assert (both.state, both.predictor.every) == (2, 1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("0.5m", 30), ("45", 45), ("1d", 86_400)]
)
def test_a_time_budget_may_be_written_with_units(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget=soon"], "--budget must be a time such as 90s"),
        (["--budget=-5"], "--budget must be a time such as 90s, 30m, 2h or 1h30m, got '-5'"),
        (["--budget=nan"], "got 'nan'"),
        (["--budget=inf"], "got 'inf'"),
        (["--suite=gird"], "did you mean grid?"),
        (["--state=0"], "the model has states 1 to 3"),
        (["--state=early"], "--state must be a number or 'final'"),
        (["--eps=8/0"], "--eps must be a number"),
        (["--norm=L2"], "does not say for which L2 radius"),
        (["--sources", "/nowhere"], "is not a store of results"),
        (["--limit=0"], "limit must be at least 1"),
        (["--defence.every=4"], "add --defence entropy, or drop --defence.every"),
        (["--defence=none", "--defence.variant=paper", "--defence.steps=3"], "--defence.variant and --defence.steps"),
        (["--aware"], "the predictor has no defence: add --defence entropy"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(tmp_path, capsys, words, message):
    assert run(f"--out={tmp_path / 'out'}", "--device=cpu", *words) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("robustdeq: error: ")
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "out").exists()


def test_a_plain_function_cannot_be_attacked_aware_of_a_defence(tmp_path, capsys):
    assert run(f"--out={tmp_path / 'out'}", "--aware", ckpt="tests.evaluation.predictors:plain_function") == 1
    assert "its own gradient is all there is" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_flags_may_be_spelt_with_dashes_or_underscores():
    spellings = (
        ["--batch-size=2", "--keep_images", "--data_root", "d"],
        ["--batch_size=2", "--keep-images", "--data-root", "d"],
    )
    for words in spellings:
        found = verb_parser("evaluate").parse_words(["ckpt", "--out=o", *words])
        assert (found["batch_size"], found["keep_images"], str(found["data_root"])) == (2, True, "d")


@pytest.mark.parametrize("dataset", [None, "folder"])
def test_a_folder_s_images_are_read_as_the_checkpoint_takes_them(tmp_path, monkeypatch, dataset):
    for part, name in itertools.product(("train", "test"), "ab"):
        folder = tmp_path / "data" / part / name
        folder.mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (12, 9), (80 * k, 0, 255)).save(folder / f"{k}.png")
    monkeypatch.setattr(predictors, "METADATA", {"image_shape": [1, 8, 8], "dataset": dataset})
    words = ["--data=folder", f"--data-root={tmp_path / 'data'}", "--eps=0.1", "--device=cpu"]
    assert run(f"--out={tmp_path / 'out'}", *words, ckpt="tests.evaluation.predictors:linear_function") == 0
    assert manifest(tmp_path / "out")["data"]["images"] == 6


def test_a_checkpoint_s_own_data_options_go_before_its_image_shape():
    options = {"size": [8, 8], "channels": 1}
    own = Checkpoint(name="a", predictor=None, dataset="folder", image_shape=(3, 4, 4), data_options=options)
    assert own.options_for("folder") == options
    assert own.options_for("digits") == {}


def test_a_defence_needs_dynamics(tmp_path, capsys):
    words = [f"--out={tmp_path / 'out'}", "--defence=entropy"]
    assert run(*words, ckpt="tests.evaluation.predictors:plain_function") == 1
    assert "has no dynamics" in capsys.readouterr().err


def test_a_predictor_that_reads_an_early_state_keeps_it_behind_a_defence():
    early = EarlyState(small_deq(), state=1)
    x = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    defended = deploy(early, defence={"every": 2, "steps": 0}, state=None)
    torch.testing.assert_close(defended(x), early(x), rtol=0, atol=0)
    with pytest.raises(ValueError, match="reads state 1 by itself"):
        deploy(early, defence=None, state="final")


def test_json_holds_what_the_table_shows_and_nothing_else_is_on_standard_output(tmp_path, capsys):
    words = ["--suite=audit-reduced", "--limit=3", "--device=cpu", "--base=tests.evaluation.predictors:linear_function"]
    assert run(f"--out={tmp_path}", *words, "--json", "--batch-size=3") == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert "3 images can detect a gain of" in shown.err  # said before the attacks
    audit = found["audit"]
    assert audit["verdict"] == "undecided"
    assert {"name", "state", "value", "low", "high", "limit", "decides", "masking", "sentence"} <= audit["flags"][
        0
    ].keys()
    assert audit["base_union"]["images"] == 3
    assert found["union"]["value"] == audit["union"]["value"]
    kept = json.loads((tmp_path / "audit.json").read_text())
    assert kept["flags"] == audit["flags"]
    assert run(f"--out={tmp_path}", *words, "--batch-size=3") == 0
    assert f"verdict: undecided: {audit['reason']}" in capsys.readouterr().out
