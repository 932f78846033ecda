"""`robustdeq predict`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import robustdeq as rd
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


def test_the_state_is_a_choice(capsys, folder, model, digits):
    for state, logits in (("3", model.trajectory(digits).logits[2, 0]), ("final", model(digits)[0])):
        _, out, _ = predict(capsys, folder, folder / "0.png", "--json", f"--state={state}")
        (record,) = json.loads(out)
        assert record["confidence"] == pytest.approx(logits.softmax(0).max().item(), rel=1e-5)
    code, _, err = predict(capsys, folder, folder / "0.png", "--state=9")
    assert code == 1
    assert err == "robustdeq: error: the model has states 1 to 8, got --state 9\n"


def test_entropy_reduction_within_the_checkpoint_s_budget(capsys, folder, model, digits):
    defended = rd.EntropyReduction(model, step_size=0.15 / 4, radius=0.15).trajectory(digits)
    _, out, _ = predict(capsys, folder, folder / "0.png", "--json", "--defence=entropy")
    (record,) = json.loads(out)
    assert record["entropy"] == pytest.approx(defended.entropy[:, 0].tolist(), rel=1e-3)
    assert record["defence"] == "entropy"


def test_one_bad_file_does_not_stop_the_others(capsys, folder, digits):
    (folder / "bad.png").write_text("not an image")
    code, out, err = predict(capsys, folder, folder / "bad.png", folder / "0.png", folder / "missing.png", "--json")
    assert code == 1
    records = json.loads(out)
    assert ["error" in r for r in records] == [True, False, True]
    assert len(err.splitlines()) == 2
    assert all(line.startswith("robustdeq: error: ") for line in err.splitlines())


def test_the_table_says_what_was_done_to_a_file(capsys, folder, digits):
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


def test_a_model_without_states_answers_too(capsys, folder, digits):
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
