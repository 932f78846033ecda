"""The Python and the commands of the documentation run; it builds strictly; its lines are short."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.arguments.parser import VERBS, verb_parser
from robustdeq.evaluation.audit.flags import FLAGS
from robustdeq.models import registry

ROOT = Path(__file__).parents[1]
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)
EXTEND = [p for p in PAGES if "extend" in p.parts]
WITH_PYTHON = [p for p in PAGES if "```python" in p.read_text() and p not in EXTEND]
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE += [p for p in sorted((ROOT / "results").rglob("*.md")) if "report" not in p.parts]
PROSE += [ROOT / "benchmarks" / "README.md"]
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


@pytest.fixture(scope="module")
def two_stores(tmp_path_factory):
    """A folder with two small stores, DIR and OTHER: what store.md reads."""
    folder = tmp_path_factory.mktemp("stores")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = rd.DEQ(
            encoder=torch.nn.Flatten(),
            dynamics=Contraction(),
            head=torch.nn.Linear(4, 3),
            solver=rd.Picard(max_steps=1),
        ).eval()
    x, y = torch.rand(4, 1, 2, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    for suite in ("quick", "grid"):
        rd.evaluate(model, (x, y), suite=suite, out=folder / "DIR", threat=rd.Linf(0.1), keep_images=True)
    shutil.copytree(folder / "DIR", folder / "OTHER")
    return folder


class Contraction(torch.nn.Module):
    def forward(self, z, u):
        return 0.5 * torch.tanh(z) + u


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda p: p.stem)
def test_the_python_of_a_page_runs_as_it_stands(page, tmp_path, monkeypatch, request):
    stores = page.stem == "store"
    monkeypatch.chdir(request.getfixturevalue("two_stores") if stores else tmp_path)
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    scope = {"__name__": "page"}
    for _, block in fences(page.read_text(), "python"):
        exec(compile(block, str(page), "exec"), scope)


def test_the_pages_with_python_are_found():
    assert {"choose", "deq", "evaluate", "store"} <= {p.stem for p in WITH_PYTHON}


@pytest.mark.parametrize("page", [p for p in EXTEND if p.stem != "index"], ids=lambda p: p.stem)
def test_the_code_of_a_page_on_extending_is_taken_from_its_example(page):
    text = page.read_text()
    sources = [(ROOT / name).read_text() for name in re.findall(r"`(examples/extend/\S+?)`", text)]
    blocks = [block for language in ("python", "yaml") for _, block in fences(text, language)]
    assert sources
    assert blocks
    assert all(any(block in source for source in sources) for block in blocks)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.stem)
def test_every_command_has_verbs_and_flags_that_exist(page):
    for command in commands(page.read_text()):
        _, verb, *words = shlex.split(command)
        verb_parser(verb).parse_words(words)


def test_commands_are_found():
    assert len(list(commands((ROOT / "docs" / "index.md").read_text()))) >= 6
    assert len(list(commands((ROOT / "docs" / "scale.md").read_text()))) >= 3


def test_every_flag_of_the_audit_has_a_section_and_a_row():
    sections = re.findall(r"^## (.*)$", (ROOT / "docs" / "flags.md").read_text(), re.M)
    table = (ROOT / "docs" / "audit.md").read_text().split("## Flags")[1]
    assert sections == list(FLAGS)
    rows = re.findall(r"^\| `([a-z-]+)` \| (yes|no) \| (\d+)% \|", table, re.M)
    assert rows == [(n, "yes" if k.masking else "no", f"{100 * k.limit:.0f}") for n, k in FLAGS.items()]


def test_figures_are_small_and_each_is_shown_on_a_page():
    shown = {m for p in PAGES for m in re.findall(r"\]\((?:\.\./)?(figures/[^)]*)\)", p.read_text())}
    there = {f"figures/{p.name}" for p in (ROOT / "docs" / "figures").iterdir()}
    assert shown == there
    assert all((ROOT / "docs" / name).stat().st_size < 200_000 for name in there)


@pytest.mark.parametrize("page", PROSE, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_is_broken_at_120_characters(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "![", "<"))]
    assert not [line for line in lines if len(line) > 120 and " " in re.sub(r"\[[^]]*\]\([^)]*\)", "", line).strip()]


@pytest.mark.parametrize("page", PROSE, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_to_a_heading(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http", "mailto")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, link


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
