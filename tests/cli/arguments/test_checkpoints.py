"""What CKPT on the command line resolves to."""

import sys

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.arguments.checkpoint import resolve

METADATA = {"dataset": "digits", "eps": 0.15, "held_out": 200}


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano").eval()
    model.metadata = dict(METADATA)
    return model


def test_a_folder_says_its_data_and_budget(model, tmp_path):
    model.save_pretrained(tmp_path / "mine")
    found = resolve(str(tmp_path / "mine"))
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(found.predictor(x), model(x))
    assert (found.dataset, found.eps) == ("digits", 0.15)
    assert found.image_shape == (1, 8, 8)
    assert found.classes == tuple("0123456789")


def test_a_checkpoint_s_own_shape_and_classes_go_before_those_of_its_data_set(model, tmp_path):
    model.metadata |= {"dataset": "folder", "image_shape": [1, 16, 12], "classes": ["a", "b"]}
    model.save_pretrained(tmp_path)
    found = resolve(str(tmp_path))
    assert found.image_shape == (1, 16, 12)
    assert found.classes == ("a", "b")


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(
        "import robustdeq as rd\n"
        "def nano():\n    model = rd.create_model('mdeq-nano')\n"
        "    model.metadata = {'dataset': 'digits', 'eps': 0.1}\n    return model\n"
        "def bare():\n    return lambda x: x.flatten(1)\n"
        "def nothing():\n    return None\n"
        "def of_size(width, *, depth=1, seed):\n    return None\n"
        "def broken():\n    return {}['weights']\n"
        "def silent():\n    assert False\n"
        "def leaving():\n    raise SystemExit(3)\n"
        "def lost():\n    return rd.load('nowhere')\n"
        "number = 3\n"
    )
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_a_function_of_a_module_in_the_current_folder_gives_a_predictor_in_eval_mode(own_module):
    before = list(sys.path)
    found = resolve("my_models:nano")
    assert isinstance(found.predictor, rd.MDEQ)
    assert not found.predictor.training
    assert (found.dataset, found.eps) == ("digits", 0.1)
    assert sys.path == before


def test_a_missing_budget_is_an_error_only_where_it_is_needed(own_module):
    found = resolve("my_models:bare")
    assert found.predictor(torch.ones(1, 2, 2)).shape == (1, 4)
    assert found.eps is None
    with pytest.raises(rd.CheckpointError, match="my_models:bare does not say its eps"):
        found.required("eps")


@pytest.mark.parametrize(
    ("ckpt", "message"),
    [
        ("my_model:nano", "cannot import my_model"),
        ("my_models:nanoo", "my_models has no nanoo; did you mean nano?"),
        ("my_models:nothing", "returned a NoneType; expected a predictor"),
        ("my_models:number", "is a int; expected a function"),
        ("my_models:of_size", "my_models:of_size: missing a required argument: 'width'; expected a function"),
        ("my_models:broken", "my_models:broken: broken failed (KeyError: 'weights')"),
        ("my_models:silent", "my_models:silent: silent failed (AssertionError)"),
        ("my_models:leaving", "my_models:leaving: leaving failed (SystemExit: 3)"),
        ("my_models:lost", "my_models:lost: lost failed (CheckpointError: "),
    ],
)
def test_a_function_that_gives_no_predictor_is_one_sentence(own_module, ckpt, message):
    with pytest.raises(rd.CheckpointError) as caught:
        resolve(ckpt)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_models.py").write_text("1 / 0\n")
    with pytest.raises(rd.CheckpointError, match=r"^bad_models:a: cannot import bad_models \(ZeroDivisionError: "):
        resolve("bad_models:a")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"image_shape": [8, 8]}, r"image_shape must be three whole numbers \(channels, height, width\)"),
        ({"image_shape": [1, 8, 0]}, r"such as \[3, 32, 32\], got \[1, 8, 0\]"),
        ({"image_shape": ["1", 8, 8]}, "image_shape must be three"),
        ({"image_shape": 8}, "image_shape must be three .* got 8"),
        ({"classes": "abc"}, "classes must be a list of names, got 'abc'"),
        ({"classes": 12}, "classes must be a list of names, got 12"),
        ({"data_options": [8]}, r"data_options must be a dictionary, got \[8\]"),
        ("digits", "metadata must be a dictionary, got 'digits'"),
    ],
)
def test_wrong_metadata_are_one_sentence(own_module, tmp_path, metadata, message):
    body = f"def made():\n    def logits(x):\n        return x\n    logits.metadata = {metadata!r}\n    return logits\n"
    (tmp_path / f"{own_module}.py").write_text(body)
    with pytest.raises(rd.CheckpointError, match=message) as caught:
        resolve(f"{own_module}:made")
    assert str(caught.value).startswith("my_models:made: ")


def test_the_folder_of_a_training_run_is_answered_with_its_best_checkpoint(model, tmp_path):
    model.save_pretrained(tmp_path / "run" / "best")
    with pytest.raises(rd.CheckpointError, match=r"did you mean .*run/best"):
        resolve(str(tmp_path / "run"))


def test_a_mistyped_folder_is_answered_with_the_one_beside_it(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save_pretrained(tmp_path / "runs" / "digits")
    with pytest.raises(rd.CheckpointError, match="no checkpoint runs/digit; did you mean runs/digits"):
        resolve("runs/digit")


def test_a_name_unlike_any_checkpoint_is_answered_with_what_a_checkpoint_is(tmp_path):
    with pytest.raises(rd.CheckpointError, match=r"expected a folder with config\.json and model\.safetensors"):
        resolve(str(tmp_path / "qqqqqq"))
