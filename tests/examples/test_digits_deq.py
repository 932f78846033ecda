"""examples/digits_deq.py runs as its user runs it, and does what it says."""

import re

import pytest
import torch

import robustdeq as rd
from robustdeq.models import registry
from tests.examples.scripts import script


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
        yield script("digits_deq")


@pytest.fixture(scope="module")
def run(example, tmp_path_factory):
    """The checkpoint's folder, and what the script prints."""
    out, lines = tmp_path_factory.mktemp("digits") / "checkpoint", []

    def keep(content):
        from rich.console import Console

        with (console := Console(width=200)).capture() as captured:
            console.print(content)
        lines.append(captured.get())

    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(example, "print", keep)
        example.main(["--epochs", "2", "--out", str(out)])
    return out, "".join(lines)


def test_the_trained_model_is_accurate_and_so_are_other_solvers_and_gradients(run):
    _, text = run
    accuracy = float(re.search(r"test accuracy ([\d.]+)%", text)[1])
    assert accuracy > 90
    swapped = re.findall(r"(?:Broyden|Anderson|Picard) +\S (Phantom|Implicit|Neumann|OneStep) +\S ([\d.]+)%", text)
    assert len(swapped) == 6
    assert all(abs(float(other) - accuracy) < 2 for _, other in swapped)


def test_every_state_of_the_dynamics_has_a_row(run):
    _, text = run
    states = re.findall(r"z\[(\d+)\] +\S +([\d.]+)% +\S +([\d.]+) +\S +(\S+)", text)
    assert [int(t) for t, *_ in states] == list(range(1, 13))
    residuals = [float(r) for *_, r in states]
    assert residuals[-1] < residuals[0] / 10
    assert int(re.search(r"(\d+) of 450 images converged", text)[1]) > 225
    assert re.search(r"spectral radius .* mean \d\.\d+", text)


def test_the_checkpoint_is_saved_and_loads_to_the_accuracy_that_was_printed(run, example):
    out, text = run
    assert "the logits are identical" in text
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "model.safetensors"]
    model = rd.load(out)
    assert isinstance(model, rd.DEQ)
    _, x, _, y = example.digits(0)
    with torch.no_grad():
        assert f"test accuracy {example.accuracy(model(x), y):.1%}" in text


def test_a_wrong_argument_ends_the_script(example):
    with pytest.raises(SystemExit):
        example.main(["--epoch-count", "1"])
