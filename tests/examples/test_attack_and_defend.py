"""The example runs, its numbers are the library's, and its heart is as short as promised."""

import ast
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch

import robustdeq as rd
from robustdeq.data import load_digits

SCRIPT = Path(__file__).parents[2] / "examples" / "attack_and_defend.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("attack_and_defend", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs_and_tells_what_happened(example, capsys):
    with torch.random.fork_rng():
        example.main(["--steps", "40", "--image", "3"])
    text = capsys.readouterr().out
    label = load_digits()[2].labels[3].item()
    assert f"label {label}, undefended prediction on the clean image" in text
    assert re.search(r"attacked within 0\.150: undefended prediction \d", text)
    defended, verdict = re.search(r"defended prediction (\d) \((fooled|not fooled)\)", text).groups()
    assert (int(defended) != label) == (verdict == "fooled")
    entropies = re.search(r"defended states: ([\d. ]+)", text)[1].split()
    assert len(entropies) == 8


def test_an_image_of_its_own_choice_is_classified_correctly_before_the_attack(example, capsys):
    with torch.random.fork_rng():
        example.main(["--steps", "40"])
    label, predicted = re.search(r"label (\d), .* clean image (\d)", capsys.readouterr().out).groups()
    assert label == predicted


def test_attack_and_defend_takes_under_ten_lines(example):
    (function,) = ast.parse(inspect.getsource(example.attack_and_defend)).body
    lines = {line for statement in function.body[1:] for line in range(statement.lineno, statement.end_lineno + 1)}
    assert len(lines) < 10


def test_its_parts_are_those_of_the_library(example):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", num_classes=10).eval()
    x, y = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([3, 5])
    result, entropy = example.attack_and_defend(model, x, y)
    defended = rd.EarlyState(rd.EntropyReduction(model, radius=example.EPS))
    assert torch.equal(result.logits, defended(result.images))
    assert torch.equal(entropy, defended.trajectory(result.images).entropy)
    assert rd.Linf(example.EPS).contains(result.images, x).all()
