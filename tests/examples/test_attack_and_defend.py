"""examples/attack_and_defend.py runs, prints what the library computes, and steps by a quarter of eps."""

import ast
import inspect
import re

import pytest
import torch

import robustdeq as rd
from robustdeq.data import load_digits
from tests.examples.scripts import script


@pytest.fixture(scope="module")
def example():
    return script("attack_and_defend")


class Cell(torch.nn.Module):
    def forward(self, z, u):
        return 0.3 * torch.tanh(z) + u


@pytest.fixture
def small_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        return rd.DEQ(encoder=encoder, dynamics=Cell(), head=torch.nn.Linear(10, 10)).eval()


def test_it_prints_predictions_and_entropies_of_an_attack_whose_steps_are_a_quarter_of_eps(
    example, small_model, monkeypatch
):
    lines, results, model = [], [], small_model
    attack_and_defend = example.attack_and_defend
    monkeypatch.setattr(example, "trained", lambda steps: model)
    monkeypatch.setattr(example, "print", lines.append)
    monkeypatch.setattr(
        example, "attack_and_defend", lambda *case: results.append((case, attack_and_defend(*case))) or results[-1][1]
    )
    example.main(["--image", "3"])
    text, ((_, x, y), (result, entropy)) = "\n".join(lines), results[0]
    assert f"label {y.item()}, undefended prediction on the clean image {model(x).argmax()}" in text
    assert re.search(r"attacked within 0\.150: undefended prediction \d", text)
    defended, verdict = re.search(r"defended prediction (\d) \((fooled|not fooled)\)", text).groups()
    assert (int(defended) != y.item()) == (verdict == "fooled")
    assert len(re.search(r"defended states: ([\d. ]+)", text)[1].split()) == 8

    same = rd.EarlyState(rd.EntropyReduction(model, radius=example.EPS, step_size=example.EPS / 4))
    trajectory = same.trajectory(result.images)
    assert torch.equal(entropy, trajectory.entropy)
    assert int(defended) == trajectory.logits[-1].argmax()
    assert rd.Linf(example.EPS).contains(result.images, x).all()


def test_it_chooses_an_image_that_is_classified_correctly_before_the_attack(example):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = example.trained(1)
    images = load_digits()[2]
    x, y = images.pixels.float() / 255, images.labels
    chosen = example.first_correct(model, x, y)
    assert model(x[chosen : chosen + 1]).argmax() == y[chosen]
    with pytest.raises(SystemExit, match="none of 1 images correctly"):
        example.first_correct(model, x[chosen : chosen + 1], (y[chosen : chosen + 1] + 1) % 10)


def test_attack_and_defend_takes_under_ten_lines(example):
    (function,) = ast.parse(inspect.getsource(example.attack_and_defend)).body
    lines = {line for statement in function.body[1:] for line in range(statement.lineno, statement.end_lineno + 1)}
    assert len(lines) < 10
