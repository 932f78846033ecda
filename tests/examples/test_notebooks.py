"""The notebooks run from top to bottom, are stored without outputs, and stay small."""

import json

import matplotlib.pyplot as plt
import pytest
import torch

from tests.data.official import REAL, needs_cifar10
from tests.examples.scripts import EXAMPLES

NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def cells(path, kind="code"):
    notebook = json.loads(path.read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


@pytest.fixture
def execute(monkeypatch, capsys):
    monkeypatch.setattr(plt, "show", plt.close)
    monkeypatch.setenv("ROBUSTDEQ_DATA", str(REAL))

    def run(name):
        scope = {"__name__": "notebook"}
        with torch.random.fork_rng():
            for cell in cells(EXAMPLES / "notebooks" / f"{name}.ipynb"):
                exec(compile("".join(cell["source"]), name, "exec"), scope)
        return scope, capsys.readouterr().out

    return run


def test_the_notebooks_are_there_without_outputs_and_small():
    assert [path.stem for path in NOTEBOOKS] == ["attack_one_image", "evaluate_honestly"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < 20_000
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(path))
        assert len(cells(path, "markdown")) >= 5


@pytest.mark.long
def test_one_image_is_attacked_and_its_dynamics_shown(execute):
    scope, text = execute("attack_one_image")
    assert "Estimate(gradient=Phantom(steps=9, damping=0.5))" in text
    assert "- fooled" in text
    assert "view='bpda'" in text
    assert scope["dynamics"]["attacked, defended"].inputs is not None


@pytest.mark.long
@needs_cifar10
def test_a_model_is_evaluated_honestly(execute):
    scope, text = execute("evaluate_honestly")
    assert scope["union"].sum() <= min(kept.sum() for kept in scope["survivors"].values())
    assert scope["share"].high - scope["share"].low > 0.3
    assert "the true accuracy may lie anywhere" in text
