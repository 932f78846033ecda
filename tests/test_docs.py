"""The documentation's Python and commands are run; it builds strictly."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robustdeq.cli.parser import VERBS, verb_parser
from robustdeq.evaluation.audit.judge import FLAGS
from robustdeq.models import registry
from tests.report.results import two_attacks

ROOT = Path(__file__).parents[1]
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)
WITH_PYTHON = [p for p in PAGES if "```python" in p.read_text()]
TORCHRUN = re.compile(r"^torchrun .* -m robustdeq\.cli\.main ")


def fences(text, language):
    """The contents of fenced blocks, and whether the line above says that they are run."""
    pattern = rf"(<!-- run -->\n)?```{language}\n(.*?)```"
    return [(bool(run), block) for run, block in re.findall(pattern, text, re.S)]


def commands(text):
    """Lines of shell blocks that call robustdeq, without comments."""
    for _, block in fences(text, "(?:sh)?"):
        for line in block.splitlines():
            line = TORCHRUN.sub("robustdeq ", re.split(r"\s+#", line)[0].strip())
            if line.startswith("robustdeq "):
                yield line


def test_pages_are_found():
    names = {p.name for p in PAGES}
    assert {"index.md", "deq.md", "own-model.md", "evaluate.md", "threat-model.md", "flags.md", "choose.md"} <= names
    assert len(WITH_PYTHON) >= 4


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda p: p.stem)
def test_the_python_of_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    for name in ("DIR", "OTHER"):  # what store.md reads
        two_attacks(tmp_path / name, keep=True)
    scope = {"__name__": "page"}
    for _, block in fences(page.read_text(), "python"):
        exec(compile(block, str(page), "exec"), scope)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.stem)
def test_every_command_has_verbs_and_flags_that_exist(page):
    for command in commands(page.read_text()):
        _, verb, *words = shlex.split(command)
        verb_parser(verb).parse_words(words)


def test_every_flag_of_the_audit_has_a_section():
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "flags.md").read_text(), re.M)
    assert sections == list(FLAGS)


def test_commands_are_found():
    assert len(list(commands((ROOT / "docs" / "index.md").read_text()))) >= 6
    assert len(list(commands((ROOT / "docs" / "scale.md").read_text()))) >= 3


def test_pictures_are_small_and_of_the_page_that_names_them():
    named = {m for p in PAGES for m in re.findall(r"\]\((images/[^)]*)\)", p.read_text())}
    there = {f"images/{p.name}" for p in (ROOT / "docs" / "images").iterdir()}
    assert named == there
    assert all((ROOT / "docs" / name).stat().st_size < 200_000 for name in there)


@pytest.mark.long
def test_the_commands_that_are_run_work_in_order(tmp_path):
    from PIL import Image

    from robustdeq.data import load_dataset

    digit = load_dataset("digits").test.pixels[0, 0].numpy()
    Image.fromarray(digit).save(tmp_path / "digit.png")
    blocks = [block for page in PAGES for run, block in fences(page.read_text(), "sh") if run]
    assert blocks
    for line in (line for block in blocks for line in block.splitlines()):
        words = shlex.split(re.split(r"\s+#", line)[0])
        assert words[0] == "robustdeq"
        run = subprocess.run(
            [sys.executable, "-m", "robustdeq.cli.main", *words[1:]], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.returncode == 0, f"{line}\n{run.stderr}"
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.long
def test_the_documentation_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs", reason="the docs extra is not installed")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "site" / "reference" / "cli" / "index.html").read_text()
    assert all(f"robustdeq {verb}" in text for verb in VERBS)
    decisions = len(list((ROOT / "docs" / "decisions").glob("*.md")))
    assert len(list((tmp_path / "site" / "decisions").glob("*/index.html"))) == decisions
