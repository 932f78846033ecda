"""What the page says of stores whose outcomes are known, without drawing and without a browser."""

from dataclasses import replace

import polars as pl
import pytest

from robustdeq.evaluation.analysis.statistics import Difference
from robustdeq.report import find_sources, make_tables
from robustdeq.report.figures import make_figures
from robustdeq.report.figures.drawing import distinct
from robustdeq.report.missing import missing_experiments
from robustdeq.report.page.answer import answers
from robustdeq.report.page.cards import in_words, make_cards
from robustdeq.report.page.chart import different_images
from robustdeq.report.page.lacking import lacking
from robustdeq.report.page.pictures import broken_images
from robustdeq.report.page.sheets import make_sheets
from robustdeq.report.tables.table import NONE, Cell, Table
from tests.report.results import attack, autoattack, grid_attack, make_store, two_attacks, write_audit


def page_of(folder):
    sources = find_sources([folder])
    cards = make_cards(sources)
    sheets = {sheet.table.name: sheet for sheet in make_sheets(make_tables(sources), cards)}
    return sources, {card.name: card for card in cards}, sheets


def numbers(row):
    return {m.name: m.value for m in row.measures}


def test_all_stores_of_a_model_share_a_card_with_its_defences(tmp_path):
    two_attacks(tmp_path / "plain", also=[("entropy-paper", "paper", 2, 10)], saves=[2])
    two_attacks(tmp_path / "defended", defended=True)
    two_attacks(tmp_path / "other", states="random")
    _, cards, _ = page_of(tmp_path)
    assert set(cards) == {"plain", "other"}
    card = cards["plain"]
    assert [row.result.label for row in card.rows] == ["plain", "defended"]
    assert all(m.where.startswith("store defended") for m in card.rows[1].base if m.share)
    assert card.shown == []  # the same defence was attacked itself in the other store


def test_a_union_is_over_the_images_that_all_attacks_were_run_on(tmp_path):
    specs = grid_attack(1, 1, 1.0) | autoattack("aa", limit=5)
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "aa": [0, 1]}, specs=specs)
    _, cards, _ = page_of(tmp_path)
    (row,) = cards["s"].rows
    # of the first 5 images 2 are broken; of all 10 it would be 80 %, above AutoAttack
    assert numbers(row) == {"clean": "100.0", "strongest attack": "90.0", "AutoAttack": "60.0", "union": "60.0"}
    assert row.measures[3].said == "all 2; first 5 images"


def test_an_attack_on_survivors_is_not_the_strongest_because_it_broke_the_few_that_it_saw(tmp_path):
    specs = grid_attack(1, 1, 1.0) | attack("again-1-apgd-ce", "audit", attack="apgd", survivors="deployed")
    store = make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "again-1-apgd-ce": [5]}, specs=specs)
    only = pl.read_parquet(store.path("again-1-apgd-ce", 0)).filter(pl.col("image") == 5)
    store.write("again-1-apgd-ce", 0, only)
    (row,) = page_of(tmp_path)[1]["s"].rows
    assert (numbers(row)["strongest attack"], numbers(row)["union"]) == ("90.0", "80.0")


def test_an_autoattack_that_was_stopped_is_called_unfinished(tmp_path):
    specs = grid_attack(1, 1, 1.0) | autoattack("aa")
    store = make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "aa": [0, 1]}, specs=specs)
    store.path("aa", 0).unlink()
    (row,) = page_of(tmp_path)[1]["s"].rows
    (aa,) = [m for m in row.measures if m.name == "AutoAttack"]
    assert (aa.share, aa.said) == (None, "not finished")


def test_models_without_autoattack_stand_below_those_with_it(tmp_path):
    make_store(tmp_path / "weak", {"aa": range(8)}, specs=autoattack("aa"))
    make_store(tmp_path / "untried", {"pgd-ready": []}, specs=attack("pgd-ready", "ready"), states="random")
    _, cards, _ = page_of(tmp_path)
    assert list(cards) == ["weak", "untried"]
    assert answers(list(cards.values()))[0].startswith(
        "weak has the highest robust accuracy of 2 models: 20.0\N{NO-BREAK SPACE}%"
    )
    assert [cards[name].next[0] for name in cards] == [
        "nobody looked for masked gradients yet: audit it",
        "AutoAttack was not run",
    ]


@pytest.mark.parametrize(
    ("low", "high", "oblivious", "said"),
    [
        (-0.08, 0.17, False, "no gain shown: +5.0 points [-8.0, +17.0]; these 50 images can detect 13.0 points"),
        (0.01, 0.09, False, "gain shown: +5.0 points"),
        (0.01, 0.09, True, "on images that were made against the undefended model"),
    ],
)
def test_a_gain_is_told_in_words(low, high, oblivious, said):
    assert said in in_words(Difference(0.05, low, high, 50), oblivious=oblivious)


def test_columns_that_say_nothing_are_left_out_and_the_papers_numbers_are_one_click_away(tmp_path):
    two_attacks(tmp_path / "a")
    two_attacks(tmp_path / "b", states="random")
    sheet = page_of(tmp_path)[2]["table-1"]
    shown = [column.name for column in sheet.columns if not column.beside]
    assert {"data", "eps", "AA", "paper: PGD", "comparable"}.isdisjoint(shown)
    assert shown[:4] == ["store", "clean", "PGD", "union"]  # a phone shows numbers first
    assert "data digits" in sheet.everywhere
    assert sheet.beside
    assert sheet.answer.startswith(
        "How many images stay right? Clean 90.0 % in every row; under some of the PGD attacks, "
    )
    assert sheet.answer.endswith("the PGD attacks, so at most, 50.0 % in every row.")


def test_comparable_numbers_of_the_paper_are_shown_beside_ours():
    head = ("store", "PGD", "paper", "comparable")
    ours, theirs = Cell("50.00", "ours"), Cell("50.46", "paper")
    alone = [Cell("-"), NONE, theirs, Cell("the paper's alone")]
    for kind, beside in (("paper", False), ("apart", True)):
        rows = [[Cell("s"), ours, replace(theirs, kind=kind), Cell("yes")], alone]
        (sheet,) = make_sheets([Table("table-2", "", head, rows)], [])
        assert {c.name: c.beside for c in sheet.columns} == {
            **{"store": False, "PGD": False},
            **{"paper": beside, "comparable": beside},
        }
        assert [line.beside for line in sheet.lines] == [False, beside]
        assert sheet.beside == beside


def test_the_answer_of_the_differences_leaves_out_defences_that_were_not_attacked_themselves(tmp_path):
    two_attacks(tmp_path / "s", also=[("entropy-paper", "paper", 2, 10)], saves=[1, 2, 3, 4, 5])
    sheet = page_of(tmp_path)[2]["differences"]
    assert "better" not in sheet.answer
    assert "Left out: 1 rows" in sheet.answer


def test_a_difference_that_no_autoattack_confirms_says_so():
    head, words = ("question", "without", "with", "PGD", "AA"), (Cell("Does it help?"), Cell("a"), Cell("b"))
    better, none = Cell("+3.00 [+1.0, +5.0]", "ours"), NONE
    for aa, said in ((none, "1 better, none of them under AutoAttack."), (better, "2 better.")):
        (sheet,) = make_sheets([Table("differences", "", head, [[*words, better, aa]])], [])
        assert sheet.answer == f"Comparisons under attack. Does it help? {said}"


def test_the_answer_of_the_differences_is_that_of_the_audit_even_if_a_larger_store_shows_a_gain(tmp_path):
    few, many = range(1, 6), {"images": 20}
    specs = grid_attack(1, 3, 0.5)
    make_store(tmp_path / "base", {"pgd-i1-K3-l0.5": range(1, 20)}, specs=specs, **many)
    make_store(tmp_path / "defence", {"pgd-i1-K3-l0.5": [1]}, specs=specs, defended=True, **many)
    make_store(tmp_path / "same-images", {"pgd-i1-K3-l0.5": few}, specs=specs)
    assert "Does Sec. 3.2 help? 2 better" in page_of(tmp_path)[2]["differences"].answer
    store = make_store(tmp_path / "audited", {"pgd-i1-K3-l0.5": few}, specs=specs, defended=True)
    write_audit(store)
    sheet = page_of(tmp_path)[2]["differences"]
    (line,) = [dict(zip(sheet.table.head, cells, strict=True)) for cells in sheet.table.rows]
    assert (line["without"].text, line["with"].text) == ("audited (base): baseline", "audited: + Sec. 3.2")
    assert line["audit"].text in ("no-gain", "undecided")
    assert sheet.answer == f"Comparisons under attack. Does Sec. 3.2 help? Audits say {line['audit'].text} (1)."


def test_a_minimum_over_a_part_of_the_grid_is_a_bound_that_no_sentence_calls_the_grid(tmp_path):
    two_attacks(tmp_path / "part", states="random")
    sheets = page_of(tmp_path)[2]
    (part,) = (dict(zip(sheets["table-1"].table.head, row, strict=True)) for row in sheets["table-1"].table.rows)
    assert part["PGD"].shown == "<= 50.00, 2 of 36 attacks"
    assert "grid" not in sheets["table-1"].answer
    two_attacks(tmp_path / "whole", whole=True)
    whole = make_tables(find_sources([tmp_path / "whole"]))[0]
    assert dict(zip(whole.head, whole.rows[0], strict=True))["PGD"].shown == "50.00"


def test_stores_whose_names_differ_in_a_slash_have_files_of_their_own(tmp_path):
    for name, states in (("a/results", "final"), ("b/results", "random"), ("a-results", "fresh")):
        two_attacks(tmp_path / name, states=states)
    sources, cards, _ = page_of(tmp_path)
    assert {"a/results", "a-results"} <= set(cards)
    assert len({card.slug for card in cards.values()}) == 3
    names = [figure.name for figure in make_figures(sources)]
    assert {"figure-2-a-results", "figure-2-a-results-2"} <= set(names)
    assert len(names) == len(set(names))


def test_numbered_names_take_no_name_of_another():
    assert distinct(["a", "a", "A", "a-2", "b"]) == ["a", "a-3", "A-4", "a-2", "b"]


def test_the_strongest_attack_is_called_another_where_autoattack_is_left_out_of_it(tmp_path):
    specs = grid_attack(1, 1, 1.0)
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0]}, specs=specs)
    make_store(tmp_path / "t", {"pgd-i1-K1-l1": [0], "aa": [0, 1]}, specs=specs | autoattack("aa"), states="random")
    cards = page_of(tmp_path)[1]
    called = {name: [card.label(m) for m in card.first.measures] for name, card in cards.items()}
    assert called["s"] == ["clean", "strongest attack", "AutoAttack", "union"]
    assert called["t"] == ["clean", "strongest other attack", "AutoAttack", "union"]


def test_the_chart_says_which_points_of_a_defence_are_over_other_images_than_those_of_its_model(tmp_path):
    specs = grid_attack(1, 1, 1.0)
    broken = {"pgd-i1-K1-l1": [0]}
    make_store(tmp_path / "s", broken, specs=specs, images=20)
    make_store(tmp_path / "d", broken, specs=specs, defended=True)
    cards = list(page_of(tmp_path)[1].values())
    assert "s 20, d 10 images" in different_images(cards)
    make_store(tmp_path / "d", broken, specs=specs, images=20, defended=True)
    assert different_images(list(page_of(tmp_path)[1].values())) == ""


def test_what_is_missing_is_grouped_by_model_with_one_command(tmp_path):
    make_store(tmp_path / "s", {"pgd-ready": [1]}, specs=attack("pgd-ready", "ready"))
    sources, cards, _ = page_of(tmp_path)
    missing = missing_experiments(sources)
    groups, beyond = lacking(missing, list(cards.values()))
    assert [group.name for group in groups] == ["s"]
    assert all(m.command in groups[0].command for m in groups[0].items)
    assert len(groups[0].items) + len(beyond) == len(missing)
    assert not any(m.what.startswith("s: ") for m in beyond)


@pytest.mark.usefixtures("undrawn")
def test_broken_images_are_taken_from_the_models_in_turn(tmp_path):
    two_attacks(tmp_path / "a", keep=True)
    two_attacks(tmp_path / "b", keep=True, states="random")
    _, cards, _ = page_of(tmp_path)
    found = broken_images(list(cards.values()))
    assert [card.name for card, _ in found] == ["a", "b", "a"]
    first = found[0][1]
    assert first.number == 3  # broken twice, with the lower margin
    assert [(reading.word, reading.right) for reading in first.readings] == [("clean", True), ("attacked", False)]
    assert first.prediction != first.label
