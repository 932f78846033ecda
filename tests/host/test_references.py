"""Code named as package.module:name: found in the current folder, refused in one line, recognised by its source."""

import sys

import pytest

from robustdeq.host import origin, references
from robustdeq.host.references import ReferenceProblem


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_in_a_module_of_the_current_folder_is_found_and_leaves_the_search_path_alone(here):
    (here / "pieces").mkdir()
    (here / "pieces" / "inner.py").write_text("class Outer:\n    value = 3\n")
    path = list(sys.path)
    assert references.resolve("pieces.inner:Outer.value") == 3
    assert sys.path == path


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere:thing", "nowhere:thing: cannot import nowhere (ModuleNotFoundError: No module named 'nowhere'); run"),
        ("there:thign", "there:thign: there has no thign; did you mean thing?"),
        ("broken:thing", "broken:thing: cannot import broken (ZeroDivisionError: division by zero)"),
        ("no reference", "no reference does not name code: expected package.module:name"),
    ],
)
def test_code_that_cannot_be_found_is_one_line(here, reference, message):
    (here / "there.py").write_text("thing = 1\n")
    (here / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ReferenceProblem) as caught:
        references.resolve(reference)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_sources_are_the_files_of_a_class_and_of_its_own_bases_and_change_with_them(here):
    (here / "base_of_mine.py").write_text("import torch\nclass Base(torch.nn.Module):\n    pass\n")
    (here / "class_of_mine.py").write_text("from base_of_mine import Base\nclass Mine(Base):\n    pass\n")
    before = references.sources("class_of_mine:Mine")
    assert set(before) == {"base_of_mine.py", "class_of_mine.py"}
    (here / "base_of_mine.py").write_text("import torch\nclass Base(torch.nn.Module):\n    changed = True\n")
    after = references.sources("class_of_mine:Mine")
    assert {name for name in after if after[name] != before[name]} == {"base_of_mine.py"}


def test_a_partial_is_known_by_the_file_that_makes_it(here):
    (here / "partial_of_mine.py").write_text("from functools import partial\nthing = partial(dict, steps=3)\n")
    assert set(references.sources("partial_of_mine:thing")) == {"partial_of_mine.py"}
    assert references.sources("robustdeq.attacks:PGD") == {}


def test_an_origin_is_known_to_its_maker_in_its_folder_only(here, monkeypatch):
    made = origin.origin("content")
    assert origin.is_from_here("content", made)
    assert not origin.is_from_here("another", made)
    assert not origin.is_from_here("content", None)
    key = here / "state" / "robustdeq" / "key"
    assert key.stat().st_mode & 0o077 == 0
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert not origin.is_from_here("content", made)
    monkeypatch.chdir(here)
    key.unlink()
    assert not origin.is_from_here("content", made)


def test_without_a_folder_for_a_key_nothing_counts_as_made_here(here, monkeypatch):
    (here / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "file"))
    assert origin.origin("content") is None
    assert not origin.is_from_here("content", None)
