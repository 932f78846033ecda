"""Attacks and oracles of one's own in a suite: run, stored with their source, refused in one line if they are wrong."""

import json
import shutil
import sys

import pytest
import torch
from tests.examples.scripts import EXAMPLES

import robustdeq as rd
from robustdeq.cli.main import main

WRONG = """
import robustdeq as rd
from dataclasses import dataclass

class Undecorated(rd.Attack):
    pace: float = 1.0
    def search(self, task):
        return task.x

@dataclass(frozen=True, kw_only=True)
class Unfinished(rd.Attack):
    steps: int = 3

@dataclass(frozen=True, kw_only=True)
class Picky(rd.Attack):
    def __post_init__(self):
        {}["nothing"]
    def search(self, task):
        return task.x

def no_attack(threat, *, seed):
    return 3

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with the example files, another module and a checkpoint."""
    monkeypatch.chdir(tmp_path)
    for name in ("my_attacks.py", "my_suite.yaml"):
        shutil.copy(EXAMPLES / "extend" / name, tmp_path)
    (tmp_path / "wrong_attacks.py").write_text(WRONG)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano", solver=rd.Broyden(max_steps=2))
    model.metadata = {"dataset": "digits", "eps": 0.15}
    model.save_pretrained(tmp_path / "model")
    yield tmp_path
    forget()


def forget():
    """Make this process as fresh as a new one."""
    for name in ("my_attacks", "wrong_attacks"):
        sys.modules.pop(name, None)


def evaluate(suite, out="out"):
    forget()
    return main(["evaluate", "model", f"--suite={suite}", f"--out={out}", "--limit=6", "--device=cpu"])


def manifest(folder):
    return json.loads((folder / "out" / "manifest.json").read_text())


def test_they_run_beside_shipped_ones_and_are_not_mixed_with_what_a_changed_one_found(folder, capsys):
    assert evaluate("my_suite.yaml") == 0
    assert {"pgd-ready", "mifgsm", "averaged"} <= {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}
    attacks = manifest(folder)["attacks"]
    assert attacks["mifgsm"]["attack"] == "my_attacks:MIFGSM"
    assert attacks["averaged"]["oracle"] == "my_attacks:Averaged"
    assert [*attacks["mifgsm"]["code"]] == [*attacks["averaged"]["code"]] == ["my_attacks.py"]
    assert "code" not in attacks["pgd-ready"]

    assert evaluate("my_suite.yaml") == 0  # nothing has changed
    before = manifest(folder)
    source = folder / "my_attacks.py"
    source.write_text(source.read_text().replace("self.threat.ascent(velocity)", "velocity"))
    capsys.readouterr()
    assert evaluate("my_suite.yaml") == 1
    assert "attacks.mifgsm: my_attacks.py changed since its results were stored" in capsys.readouterr().err
    assert manifest(folder) == before


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("attack: 'my_attacks:MIFGSM', options: {stpes: 3}", "has no option 'stpes'; did you mean 'steps'?"),
        ("attack: 'my_attacks:MIFGSM', options: {steps: few}", "steps: expected a whole number, got few"),
        ("attack: 'my_attacks:MIFGSMM'", "my_attacks has no MIFGSMM; did you mean MIFGSM?"),
        ("attack: 'my_atacks:MIFGSM'", "my_atacks:MIFGSM: cannot import my_atacks"),
        ("attack: mifgsm", "autoattack, stored or package.module:Class, got 'mifgsm'"),
        (
            "attack: 'wrong_attacks:Undecorated', options: {pace: 2.0}",
            "@dataclass(frozen=True, kw_only=True) is missing",
        ),
        ("attack: 'wrong_attacks:Unfinished'", "Can't instantiate abstract class Unfinished"),
        ("attack: 'wrong_attacks:Picky'", "wrong_attacks:Picky: it fails (KeyError: 'nothing')"),
        ("attack: 'wrong_attacks:no_attack'", "it is a int; expected a robustdeq.Attack: subclass it"),
        ("attack: 'wrong_attacks:number'", "it is a int; expected a class"),
        ("attack: pgd, oracle: 'my_attacks:Averaged', oracle_options: {wieght: 1}", "did you mean 'weight'?"),
        ("attack: pgd, oracle: 'my_attacks:MIFGSM'", "oracle my_attacks:MIFGSM cannot be made with {}"),
    ],
)
def test_what_is_wrong_with_one_is_said_in_one_line_before_anything_runs(folder, capsys, attack, message):
    (folder / "suite.yaml").write_text(f"attacks:\n  - {{name: mine, {attack}}}\n")
    assert evaluate("suite.yaml") == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert not (folder / "out").exists()


def test_an_option_may_be_written_as_a_fraction(folder):
    (folder / "suite.yaml").write_text("attacks:\n  - {name: a, attack: my_attacks:MIFGSM, options: {decay: 3/4}}\n")
    assert evaluate("suite.yaml") == 0
    assert manifest(folder)["attacks"]["a"]["options"] == {"decay": "3/4"}


def test_the_searchs_gradient_is_that_of_the_oracles_loss():
    class Half(rd.Oracle):
        target = staticmethod(lambda x: x.flatten(1))

        def estimate(self, x):
            return 0.5 * x.flatten(1)

    class Climb(rd.Attack):
        def search(self, task):
            return task.gradient(task.x, loss=lambda logits, y: logits.gather(1, y[:, None])[:, 0])

    x, y = torch.full((2, 1, 1, 3), 0.25), torch.tensor([0, 2])
    found = Climb(rd.Linf(1.0))(Half(), x, y)
    assert torch.equal(found.images.flatten(1), torch.tensor([[0.5, 0, 0], [0, 0, 0.5]]))
    assert Climb(rd.Linf(1.0)).name == "Climb"
