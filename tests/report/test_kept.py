"""A report shows what was kept in the explorer."""

import json
import re

import pytest

from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.look import look
from robustdeq.app.page import export, headline
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import deployed
from robustdeq.report import find_sources, make_report
from tests.report.results import two_attacks

DIGITS = "digits-nano-trades-random"


@pytest.fixture(scope="module")
def looked():
    return look(Case(model=DIGITS, image="test:7", steps=2, defence_steps=1), Catalogue([DIGITS], resolve), deployed)


@pytest.mark.parametrize("beside_a_store", [False, True])
def test_a_kept_case_is_a_figure_of_the_report(looked, tmp_path, beside_a_store):
    export(looked, tmp_path / "kept" / "seven")
    if beside_a_store:
        two_attacks(tmp_path / "store")
    index = make_report([tmp_path]).write(tmp_path / "report")
    (figure,) = (figure for figure in make_report([tmp_path]).figures if figure.name == "case-seven")
    assert figure.alt == " ".join(headline(looked.view))
    assert figure.where == looked.command
    assert figure.svg.strip() in index.read_text()
    assert "<script" not in figure.svg + (tmp_path / "report" / "figures" / "case-seven.svg").read_text()


@pytest.mark.parametrize("broken", ["{", json.dumps({"format": "robustdeq-case", "format_version": 2}), "[]"])
def test_a_case_that_cannot_be_read_is_named(looked, tmp_path, broken):
    export(looked, tmp_path / "kept")
    (tmp_path / "kept" / "case.json").write_text(broken)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'kept'} holds no case that can be read")):
        make_report([tmp_path])


def test_a_case_whose_sentences_or_size_cannot_be_read_is_named(looked, tmp_path):
    said, svg = (tmp_path / name for name in ("case.json", "case.svg"))
    export(looked, tmp_path)
    whole = said.read_text(), svg.read_text()
    said.write_text(json.dumps(json.loads(whole[0]) | {"headline": 5}))
    with pytest.raises(ValueError, match="holds no case that can be read"):
        find_sources([tmp_path])
    said.write_text(whole[0])
    svg.write_text(re.sub(r'viewBox="0 0 [\d.]+', 'viewBox="0 0 1.2.3', whole[1], count=1))
    with pytest.raises(ValueError, match="holds no case that can be read"):
        find_sources([tmp_path])
