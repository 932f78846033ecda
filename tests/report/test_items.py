"""Every table and figure of the paper is shown, or named as missing with a command."""

import pytest

from robustdeq.report import make_report
from robustdeq.report.missing.items import ITEMS, named
from robustdeq.report.write import HEADING
from tests.report.results import autoattack, grid_of, make_store, two_attacks

PAPER = {f"Table {n}" for n in range(1, 11)} | {f"Fig. {name}" for name in ("2", "3a", "3b", "3c", "4", "5", "6")}
"""What docs/method.md lists in section 6."""


def shown_and_missing(folder):
    report = make_report([folder])
    assert all(m.command.startswith("robustdeq ") for m in report.missing)
    titles = [shown.title[:HEADING] for shown in (*report.tables, *report.figures)]
    return [set().union(*map(named, words)) for words in (titles, [m.item for m in report.missing])]


def test_titles_and_entries_name_their_items():
    assert named("Tables 6 and 7. Prediction") == {"Table 6", "Table 7"}
    assert named("Tables 1, 6, 7, 8, Figs. 3a, 5") == {"Table 1", "Table 6", "Table 7", "Table 8", "Fig. 3a", "Fig. 5"}
    assert named("Fig. 3b. Entropy change") == {"Fig. 3b"}
    assert named("Table 1, in part. Accuracy") == {"Table 1"}
    assert named("Table 10. Speed") == {"Table 10"}
    assert named("images") == set()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("kind", ["one attack", "grid", "grid beside a defence", "union", "no dynamics"])
def test_every_item_of_the_paper_is_shown_or_named_as_missing(tmp_path, kind):
    specs = autoattack()
    if kind == "one attack":
        make_store(tmp_path / "s", {"aa": [1]}, specs=specs)
    elif kind == "grid":
        specs |= grid_of(2)
        make_store(tmp_path / "s", dict.fromkeys(specs, (1,)), specs=specs)
    elif kind == "no dynamics":
        make_store(tmp_path / "s", {"aa": [1]}, specs=specs, dynamic=False, model="resnet-tiny")
    else:
        also = [("entropy-sign", "paper")] if kind != "union" else []
        two_attacks(tmp_path / "s", union=kind == "union", also=also, whole=True)
    shown, missing = shown_and_missing(tmp_path)
    assert set(ITEMS) == PAPER
    assert PAPER - shown - missing == set()
