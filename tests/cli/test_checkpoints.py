"""What CKPT on the command line resolves to."""

import sys

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.checkpoints import resolve

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
    assert (found.dataset, found.eps, found.held_out) == ("digits", 0.15, 200)
    assert found.image_shape == (1, 8, 8)
    assert found.classes == tuple("0123456789")


def test_what_the_checkpoint_says_goes_before_what_the_data_set_is_known_for(model, tmp_path):
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
        "number = 3\n"
    )
    yield "my_models"
    sys.modules.pop("my_models", None)


def test_a_function_of_a_module_that_lies_here_gives_a_predictor_in_eval_mode(own_module):
    before = list(sys.path)
    found = resolve("my_models:nano")
    assert isinstance(found.predictor, rd.MDEQ)
    assert not found.predictor.training
    assert (found.dataset, found.eps) == ("digits", 0.1)
    assert sys.path == before


def test_a_predictor_that_does_not_say_its_budget_is_asked_for_it_only_where_it_is_needed(own_module):
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
    ],
)
def test_a_function_that_is_none_is_one_sentence(own_module, ckpt, message):
    with pytest.raises(rd.CheckpointError) as caught:
        resolve(ckpt)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_folder_of_a_training_run_is_answered_with_its_best(model, tmp_path):
    model.save_pretrained(tmp_path / "run" / "best")
    with pytest.raises(rd.CheckpointError, match=r"did you mean .*run/best"):
        resolve(str(tmp_path / "run"))


def test_a_mistyped_folder_is_answered_with_the_one_beside_it(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save_pretrained(tmp_path / "runs" / "digits")
    with pytest.raises(rd.CheckpointError, match="no checkpoint runs/digit; did you mean runs/digits"):
        resolve("runs/digit")


def test_nothing_like_it_says_what_a_checkpoint_is(tmp_path):
    with pytest.raises(rd.CheckpointError, match=r"expected a folder with config\.json and model\.safetensors"):
        resolve(str(tmp_path / "qqqqqq"))
