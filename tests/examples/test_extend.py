"""Every file of examples/extend runs, and does what its page in docs/extend says."""

import re
import sys
import warnings
from pathlib import Path

import pytest
import torch

from robustdeq.models import registry
from tests.examples.scripts import EXAMPLES, script


@pytest.fixture(scope="module")
def run():
    """Runs an example by its name and returns what it prints; the model that they share is trained once."""
    folder = str(EXAMPLES / "extend")
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
        patch.syspath_prepend(folder)
        patch.setitem(sys.modules, "my_model", my_model := script("extend/my_model"))
        model = my_model.trained()
        patch.setattr(my_model, "trained", lambda: model)

        def call(name):
            example, lines = my_model if name == "my_model" else script(f"extend/{name}"), []
            patch.setattr(example, "print", lambda *words: lines.append(" ".join(map(str, words))), raising=False)
            solver = model.solver
            example.main()
            model.solver = solver
            return "\n".join(lines)

        yield call


def percent(text, name):
    """The accuracy in a row of a verdict's table, or after a name."""
    return float(re.search(rf"{name}\D*?([\d.]+)%", text)[1])


def test_every_file_of_the_folder_is_run_by_a_test_below():
    tests = Path(__file__).read_text()
    names = [path.stem for path in (EXAMPLES / "extend").glob("*.py")]
    assert all(f'run("{name}")' in tests or f"{name}:" in tests for name in names)


def test_the_my_model_example_trains_saves_loads_and_evaluates(run):
    text = run("my_model")
    assert percent(text, "clean") > 80 > 40 > percent(text, "union")


def test_the_solver_converges_like_the_shipped_ones_and_serves_a_model(run):
    text = run("solver")
    assert len(re.findall(r"^\w+ +16 converged", text, re.M)) == 4
    right, of = map(int, re.search(r"(\d+) of (\d+) digits right", text).groups())
    assert right / of > 0.8


def test_the_attack_fools_the_model_within_the_ball(run):
    fooled = [int(n) for n in re.findall(r"fools (\d+) of 50", run("attack"))]  # with my_attacks:MIFGSM
    assert len(fooled) == 2
    assert min(fooled) > 25


def test_the_oracle_is_as_honest_as_the_models_own_gradient_and_can_be_attacked(run):
    text = run("oracle")
    own, averaged = (float(re.search(rf"{name} +([\d.]+)", text)[1]) for name in ("direct", "averaged"))
    assert averaged > own - 0.05
    assert min(int(n) for n in re.findall(r"(\d+) of 20 fooled", text)) > 5


def test_the_defence_looks_robust_until_it_is_attacked_through_its_rounding(run):
    text = run("defence")  # my_defences:Sharpen and its neighbours: tests/defences and tests/cli
    assert "gradient of the defended loss: 0.0e+00" in text
    naive, honest = map(float, re.findall(r"robust (\d+)%", text))
    assert naive > honest + 10


def test_the_suite_runs_its_own_attacks_and_scores_its_own_predictor(run):
    text = run("suite")
    assert {"pgd-ready", "margin", "third-state", "half-the-radius"} == set(re.findall(r"^(\S+) +every-4", text, re.M))
    assert percent(text, "half-the-radius") > percent(text, "margin")


def test_the_table_has_a_row_for_every_state(run):
    rows = re.findall(r"^pgd-ready,(\w+),([\d.]+),", run("table"), re.M)
    assert [state for state, _ in rows] == [*"12345678", "final"]
    assert all(float(share) > 0.3 for _, share in rows)


def test_training_from_python_calls_back_and_takes_a_loss_of_one_s_own(run):
    text = run("train")  # of my_deq:conv_deq
    assert re.findall(r"^step (\d+)", text, re.M) == ["16", "32"]
    assert "'validation_pgd': " in text
    assert "DEQ for eps 0.15" in text
    first, last = map(float, re.search(r"clean loss ([\d.]+) to ([\d.]+)", text).groups())
    assert last < first - 0.3


def test_a_torchdeq_model_converges_and_is_attacked_and_defended(run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchdeq")
        text = run("from_torchdeq")
    assert "converged: True" in text
    assert "states: (40, 8, 32)" in text
    assert "attacked by Estimate(gradient=Phantom(steps=9, damping=0.5)): " in text
