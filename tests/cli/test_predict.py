"""`robustdeq predict`."""

import importlib
import json
import re
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import robustdeq as rd
from robustdeq.cli.arguments.parser import verb_parser
from robustdeq.cli.main import main


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano").eval()
    model.metadata = {"dataset": "digits", "eps": 0.15}
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    model.save_pretrained(folder / "ckpt")
    return folder


@pytest.fixture(scope="module")
def digits(folder):
    pixels = np.random.default_rng(1).integers(0, 256, (2, 8, 8), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{i}.png")
    return torch.from_numpy(pixels)[:, None].float() / 255


def predict(capsys, folder, *words):
    code = main(["predict", str(folder / "ckpt"), *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_is_the_model_s_trajectory_on_the_file_s_pixels(capsys, folder, model, digits):
    code, out, _ = predict(capsys, folder, folder / "0.png", folder / "1.png", "--json")
    assert code == 0
    expected = model.trajectory(digits)
    for i, record in enumerate(json.loads(out)):
        logits = expected.logits[-1, i]
        assert record["label"] == logits.argmax().item()
        assert record["class"] == str(record["label"])
        assert record["confidence"] == pytest.approx(logits.softmax(0).max().item(), rel=1e-5)
        assert record["entropy"] == pytest.approx(expected.entropy[:, i].tolist(), rel=1e-4)
        assert record["residual"] == pytest.approx(expected.residual[:, i].tolist(), rel=1e-3)
        assert record["converged"] is bool(expected.status[i] == rd.Status.CONVERGED)
        assert record["notes"] == []


def test_the_state_that_predicts_can_be_chosen(capsys, folder, model, digits):
    for state, logits in (("3", model.trajectory(digits).logits[2, 0]), ("final", model(digits)[0])):
        _, out, _ = predict(capsys, folder, folder / "0.png", "--json", f"--state={state}")
        (record,) = json.loads(out)
        assert record["confidence"] == pytest.approx(logits.softmax(0).max().item(), rel=1e-5)
    code, _, err = predict(capsys, folder, folder / "0.png", "--state=9")
    assert code == 1
    assert err == "robustdeq: error: the model has states 1 to 8, got --state 9\n"


def test_entropy_reduction_stays_within_the_checkpoint_s_budget(capsys, folder, model, digits):
    defended = rd.EntropyReduction(model, step_size=0.15 / 4, radius=0.15).trajectory(digits)
    _, out, _ = predict(capsys, folder, folder / "0.png", "--json", "--defence=entropy")
    (record,) = json.loads(out)
    assert record["entropy"] == pytest.approx(defended.entropy[:, 0].tolist(), rel=1e-3)
    assert record["defence"] == "entropy"


def test_the_flags_of_the_defence_are_those_of_evaluate(capsys, folder, model, digits):
    settings = {"every": 4, "steps": 1, "direction": "gradient", "resolve": False}
    defended = rd.EntropyReduction(model, step_size=0.15 / 4, radius=0.15, **settings).trajectory(digits)
    words = [f"--defence.{name}={str(value).lower()}" for name, value in settings.items()]
    _, out, _ = predict(capsys, folder, folder / "0.png", "--json", "--defence=entropy", *words)
    (record,) = json.loads(out)
    assert record["entropy"] == pytest.approx(defended.entropy[:, 0].tolist(), rel=1e-3)
    assert predict(capsys, folder, folder / "0.png", "--defence.every=4") == (
        1,
        "",
        "robustdeq: error: without a defence --defence.every would change nothing: add --defence entropy, or drop "
        "--defence.every\n",
    )
    helps = [verb_parser(v).format_help().partition("  --defence ")[2] for v in ("predict", "evaluate", "benchmark")]
    assert "--defence.final_input" in helps[0]
    assert helps[0] == helps[1] == helps[2]


def test_an_unknown_entry_of_a_flag_that_is_no_mapping_is_an_unknown_flag(capsys, folder):
    with pytest.raises(SystemExit):
        predict(capsys, folder, folder / "0.png", "--state.first=4")
    assert capsys.readouterr().err == "robustdeq: error: predict has no flag --state.first; did you mean --state?\n"


def test_one_bad_file_does_not_stop_the_others(capsys, folder, digits):
    (folder / "bad.png").write_text("not an image")
    code, out, err = predict(capsys, folder, folder / "bad.png", folder / "0.png", folder / "missing.png", "--json")
    assert code == 1
    records = json.loads(out)
    assert ["error" in r for r in records] == [True, False, True]
    assert len(err.splitlines()) == 2
    assert all(line.startswith("robustdeq: error: ") for line in err.splitlines())


def test_the_table_shows_what_was_done_to_a_file(capsys, folder, digits):
    Image.new("RGB", (30, 20), "red").save(folder / "big.png")
    code, out, _ = predict(capsys, folder, folder / "big.png")
    assert code == 0
    text = " ".join(out.split())
    for note in ("colour to grey", "centre 20x20 of 30x20", "resized from"):
        assert note in text


def test_a_model_whose_pass_is_not_finite_gives_valid_json_and_no_class(capsys, folder, model, digits):
    broken = rd.create_model("mdeq-nano").eval()
    broken.load_state_dict(model.state_dict())
    broken.metadata = dict(model.metadata)
    with torch.no_grad():
        for parameter in broken.encoder.parameters():
            parameter.fill_(float("nan"))
    broken.save_pretrained(folder / "broken")
    assert main(["predict", str(folder / "broken"), str(folder / "0.png"), "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["class"] is None
    assert record["status"] == "non_finite"
    assert record["converged"] is False
    assert main(["predict", str(folder / "broken"), str(folder / "0.png")]) == 0
    assert "not finite" in capsys.readouterr().out


def test_a_model_without_states_predicts_too(capsys, folder, digits):
    torch.manual_seed(0)
    model = rd.create_model("resnet-tiny", in_channels=1).eval()
    model.metadata = {"dataset": "digits", "eps": 0.15}
    model.save_pretrained(folder / "resnet")
    assert main(["predict", str(folder / "resnet"), str(folder / "0.png"), "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    log_p = model(digits[:1])[0].log_softmax(0)
    assert record["entropy"] == pytest.approx([-(log_p.exp() * log_p).sum().item()], rel=1e-5)
    assert "converged" not in record
    assert main(["predict", str(folder / "resnet"), str(folder / "0.png"), "--state=3"]) == 1
    assert "no states" in capsys.readouterr().err


OWN = """
import torch
from torch import nn

DIGITS = {"dataset": "digits", "eps": 0.1}


class Net(nn.Module):
    def __init__(self, classes=10, metadata=DIGITS):
        super().__init__()
        self.linear, self.metadata = nn.Linear(64, classes), metadata

    def forward(self, x):
        return self.linear(x.flatten(1))


class Walker(Net):
    def trajectory(self, x):
        return [self(x)]


class Pair(Net):
    def forward(self, x):
        return super().forward(x), None


class Chooser(Net):
    def forward(self, x):
        return super().forward(x).argmax(1)


class Broken(Net):
    def forward(self, x):
        return {}["weights"]


def twelve():
    return Net(12)


def named():
    return Net(12, {**DIGITS, "classes": [f"[{k}]" for k in range(12)]})
"""


@pytest.fixture
def own(folder, digits, monkeypatch, capsys):
    """`predict` with a user's own model."""
    monkeypatch.chdir(folder)
    (folder / "own_nets.py").write_text(OWN)
    importlib.invalidate_caches()

    def run(function, *words):
        code = main(["predict", f"own_nets:{function}", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    sys.modules.pop("own_nets", None)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("twelve", 'gives 12 logits, but its metadata stand for 10 classes: metadata["classes"] must name each'),
        ("Pair", "a predictor returns logits, (images, classes): for 1 images this one gave a tuple"),
        ("Chooser", "for 1 images this one gave a tensor (1,) of torch.int64"),
        ("Broken", ": the prediction failed on images (1, 1, 8, 8) (KeyError: 'weights')"),
    ],
)
def test_a_model_that_does_not_give_logits_is_one_line(own, function, message):
    code, _, err = own(function, "0.png")
    assert code == 1
    assert err.startswith(f"robustdeq: error: own_nets:{function}")
    assert message in err
    assert len(err.splitlines()) == 1


def test_the_traceback_of_an_error_can_be_asked_for(own, monkeypatch):
    monkeypatch.setenv("ROBUSTDEQ_TRACEBACK", "1")
    with pytest.raises(rd.CheckpointError) as caught:
        own("Broken", "0.png")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_method_called_trajectory_does_not_make_a_deq(own):
    code, out, _ = own("Walker", "0.png", "--json")
    assert code == 0
    assert "converged" not in json.loads(out)[0]


def test_names_with_brackets_are_not_taken_for_markup(own, folder):
    (folder / "[bold]a:smile:.png").write_bytes((folder / "0.png").read_bytes())
    code, out, _ = own("named", "[bold]a:smile:.png")
    assert code == 0
    assert "[bold]a:smile:.png" in out
    assert re.search(r"\[\d+\]", out)  # the class


def test_a_file_that_the_system_cannot_open_does_not_stop_the_others(own):
    long = "x" * 300 + ".png"
    code, out, err = own("Net", long, "0.png", "--json")
    assert code == 1
    assert ["error" in record for record in json.loads(out)] == [True, False]
    assert err == f"robustdeq: error: {long} cannot be read: File name too long\n"


def test_the_plot_has_every_state_of_every_image(capsys, folder, model, digits):
    drawn = folder / "traces.svg"
    code, _, _ = predict(capsys, folder, folder / "0.png", folder / "1.png", "--plot", drawn, "--defence", "entropy")
    assert code == 0
    svg = drawn.read_text()
    assert svg.startswith("<svg")
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    said = re.findall(r"<title>(.*?), (\w+): (\d) \d+%</title>", svg)
    expected = model.trajectory(digits).logits.argmax(-1).T.tolist()
    without = [int(answer) for words, state, answer in said if words == "without defence" and state != "final"]
    assert without == expected[0] + expected[1]
    assert len(said) == 2 * 2 * 9
    assert predict(capsys, folder, folder / "0.png", "--plot", folder / "traces.png")[0] == 1
