"""The checkpoints that are shipped with robustdeq."""

import json
import re
import subprocess
import sys
from functools import cache
from importlib import resources

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.main import main
from robustdeq.data import load_dataset
from robustdeq.models import DEQ
from robustdeq.models.pretrained import shipped
from robustdeq.recipes import list_recipes
from tests.data.official import REAL, needs_cifar10

NAMES = list(shipped())


def test_shipped_checkpoints_are_named_after_their_recipes():
    assert NAMES
    assert set(NAMES) <= set(list_recipes())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_checkpoint_loads_by_name_and_says_what_it_was_trained_for(name):
    model = rd.load(name)
    digits = name.startswith("digits")
    assert (model.metadata["dataset"], model.metadata["eps"]) == (("digits", 0.15) if digits else ("cifar10", 8 / 255))
    assert name.startswith("cifar10-tiny-resnet") or isinstance(model, DEQ)
    assert model.metadata["objective"] in name
    assert (model.metadata.get("states") == "random") == name.endswith("random")
    logits = model(torch.rand(2, *model.metadata["image_shape"], generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, 10)
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cifar10")])
def test_a_shipped_checkpoint_has_a_card_with_its_accuracies(name):
    card = (shipped()[name] / "README.md").read_text()
    assert f"rd.load('{name}')" in card
    for attack in ("clean", "PGD-10", "AutoAttack"):
        assert re.search(rf"^{attack} +\d+\.\d+% \[.*\] of [\d,]+ test images$", card, re.M)


def test_the_shipped_model_of_digits_classifies_the_embedded_test_images():
    test = load_dataset("digits").test
    with torch.no_grad():
        right = (rd.load("digits-nano-trades-random")(test.pixels01()).argmax(1) == test.labels).float().mean()
    assert right > 0.9


@cache
def real_images():
    test = load_dataset("cifar10", REAL).test
    return test.pixels[:100].float() / 255, test.labels[:100]


@needs_cifar10
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("cifar10")])
def test_a_shipped_checkpoint_classifies_real_images(name):
    x, y = real_images()
    with torch.no_grad():
        right = (rd.load(name)(x).argmax(1) == y).float().mean()
    assert right > 0.4  # by chance 0.1


@pytest.mark.parametrize("defence", ["none", "entropy"])
def test_predict_classifies_photographs(defence, capsys):
    photos = resources.files("sklearn.datasets") / "images"
    files = [str(photos / name) for name in ("china.jpg", "flower.jpg")]
    assert main(["predict", "cifar10-tiny-trades-random", *files, "--defence", defence, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    classes = rd.load("cifar10-tiny-trades-random").metadata["classes"]
    assert [answer["file"] for answer in answers] == files
    for answer in answers:
        assert answer["class"] == classes[answer["label"]]
        assert (answer["defence"], answer["state"]) == (defence, 8)
        assert "resized from 427x427 to 32x32" in "; ".join(answer["notes"])


def test_loading_does_not_import_the_compiler():
    """Its 800 modules take more than a second of every command."""
    program = (
        "import sys, robustdeq as rd; rd.load('digits-nano-trades-random'); rd.load('cifar10-tiny-resnet-pgdat'); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
