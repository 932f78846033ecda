"""The Python of the README runs as it stands, its commands exist, and its numbers are those of results/."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert "EntropyReduction(model)" in block
    fast = block.replace("EntropyReduction(model)", "EntropyReduction(model, steps=1)")  # one inner iteration, not ten
    fast = fast.replace("steps=10, step_size", "steps=2, step_size")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(fast, str(README), "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "pgd-ready" in printed
    assert (tmp_path / "runs" / "quick" / "manifest.json").is_file()
    assert len([line for line in block.splitlines() if line and not line.startswith("import")]) <= 10


@pytest.mark.parametrize("target", ["demo", "test", "docs"])
def test_the_targets_of_the_readme_are_in_the_makefile(target):
    assert f"make {target}" in TEXT
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), re.M)


def test_every_accuracy_of_the_readme_is_in_the_results():
    results = (README.parent / "results" / "README.md").read_text()
    accuracies = re.findall(r"\d+\.\d %", TEXT)
    assert len(accuracies) >= 18
    assert all(accuracy in results for accuracy in accuracies)


def test_no_sentence_of_the_readme_has_more_than_two_numbers():
    prose = re.sub(r"```.*?```|^\|.*$|^!.*$|`[^`]*`|\]\([^)]*\)", "", TEXT, flags=re.S | re.M)
    prose = re.sub(r"CIFAR-10|PGD-10|z\^\[\d\]", "", prose)
    sentences = re.split(r"(?<=[.:;])\s", prose)
    assert all(len(re.findall(r"\d[\d.,/]*", sentence)) <= 2 for sentence in sentences)
