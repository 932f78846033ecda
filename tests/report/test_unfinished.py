"""Reports of evaluations that were stopped: bounds are marked, and what is not there has no number."""

import csv
import io
import re
from dataclasses import replace

import pytest

from robustdeq.report import find_sources, make_tables, write_report
from robustdeq.report.missing import missing_experiments
from tests.report.results import attack, autoattack, change, grid_attack, make_store, two_attacks

pytestmark = pytest.mark.usefixtures("undrawn")


def first_row(folder, name="table-1"):
    """The first row of a table, cells by column."""
    table = next(t for t in make_tables(find_sources([folder])) if t.name == name)
    return dict(zip(table.head, table.rows[0], strict=True))


def unfinished(folder):
    """The entry of Missing for what a store has not finished."""
    (found,) = [m for m in missing_experiments(find_sources([folder])) if m.item == "all"]
    return found


@pytest.mark.parametrize("union", [False, True])
def test_the_union_of_an_unfinished_run_is_marked_as_a_bound_in_every_format(tmp_path, union):
    store = two_attacks(tmp_path / "s", union=union)
    assert first_row(tmp_path / "s")["union"].shown == "40.00"
    store.path("pgd-ready", 0).unlink()
    cell = first_row(tmp_path / "s")["union"]
    assert (cell.text, cell.kind, cell.small) == ("40.00", "bound", "2 of 3 attacks")
    index = write_report([tmp_path / "s"], tmp_path / "out")
    assert "&lt;= 40.00<small>2 of 3 attacks</small>" in index.read_text()
    written = (index.parent / "report.md").read_text()
    assert "| <= 40.00 |" in written
    assert "<= marks an upper bound" in written
    assert r" & $\leq$ 40.00 & " in (index.parent / "tables" / "table-1.tex").read_text()
    (record,) = csv.DictReader(io.StringIO((index.parent / "tables" / "table-1.csv").read_text()))
    assert record["union"] == "<= 40.00"
    found = unfinished(tmp_path / "s")
    assert found.what == "s: 1 of 3 attacks; the union without them is an upper bound"
    assert ("--union" in found.command) == union


def test_a_missing_attack_outside_the_threat_leaves_the_union_as_it_is(tmp_path):
    specs = grid_attack(1, 1, 1.0) | attack("large-eps", "sanity", eps=0.5)
    store = make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "large-eps": []}, specs=specs)
    store.path("large-eps", 0).unlink()
    assert first_row(tmp_path)["union"].kind == "ours"
    assert unfinished(tmp_path).what == "s: 1 of 2 attacks"


def test_the_lowest_of_several_autoattacks_is_a_bound_until_all_are_done(tmp_path):
    specs = grid_attack(1, 1, 1.0) | autoattack("aa-ready") | autoattack("aa-strongest")
    store = make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0, 1], "aa-ready": [0], "aa-strongest": [0, 1]}, specs=specs)
    row = first_row(tmp_path)
    few = "<= 80.00, 1 of 36 attacks"  # of the grid
    assert [row[name].shown for name in ("PGD", "AA", "PGD, AA")] == [few, "80.00", few]
    store.path("aa-strongest", 0).unlink()
    row = first_row(tmp_path)
    assert [row[name].shown for name in ("PGD", "AA", "PGD, AA", "union")] == [
        few,
        "<= 90.00",
        few,
        "<= 80.00",
    ]


def test_transfer_is_a_bound_until_all_images_were_shown(tmp_path, monkeypatch):
    two_attacks(tmp_path / "a")
    two_attacks(tmp_path / "c")  # takes no part
    specs = grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0)
    names = list(specs)
    for name in names:
        options = {"store": "../a", "hash": specs[name].hash, "model": "h", "attack": name}
        specs |= attack(f"from.a.{name}", "transfer", attack="stored", options=options, oracle="none")
    target = make_store(tmp_path / "b", {name: [0] for name in specs}, specs=specs)
    shown = {name: cell.shown for name, cell in second_row(tmp_path).items()}
    assert (shown["from a"], shown["from b"], "from c" in shown) == ("90.00", "90.00", False)
    assert (shown["paper: a"], shown["comparable"][:18]) == ("(50.46)", "no: model mdeq-nan")
    target.path(f"from.a.{names[0]}", 0).unlink()
    target.path(names[1], 0).unlink()
    cells = second_row(tmp_path)
    assert (cells["from a"].shown, cells["from a"].small) == ("<= 90.00", f"{len(names) - 1} of {len(names)} attacks")
    assert cells["from b"].shown == "<= 90.00"
    assert f"--sources {tmp_path / 'a'} --out {tmp_path / 'b'}" in unfinished(tmp_path).command
    monkeypatch.chdir(tmp_path)
    assert "--sources a --out b" in unfinished(".").command


def second_row(folder):
    """The second row of Table 3, cells by column."""
    table = next(t for t in make_tables(find_sources([folder])) if t.name == "table-3")
    return dict(zip(table.head, table.rows[1], strict=True))


def test_differences_say_which_store_is_unfinished(tmp_path):
    store = two_attacks(tmp_path / "s", defended=True)
    assert "unfinished" not in first_row(tmp_path, "differences")["with"].text
    store.path("pgd-ready", 0).unlink()
    row = first_row(tmp_path, "differences")
    assert row["with"].text == "s: + Sec. 3.2, unfinished"
    table = next(t for t in make_tables(find_sources([tmp_path])) if t.name == "differences")
    assert any(note.startswith("unfinished: ") for note in table.notes)


def test_a_store_without_finished_attacks_has_no_numbers(tmp_path):
    store = two_attacks(tmp_path / "s")
    store.path(None, 0).unlink()
    for name in store.attacks:
        store.path(name, 0).unlink()
    row = first_row(tmp_path)
    assert {row[name].text for name in ("clean", "PGD", "AA", "PGD, AA", "union")} == {"-"}
    assert unfinished(tmp_path).what == "s: the clean accuracy and 3 of 3 attacks"
    write_report([tmp_path / "s"], tmp_path / "out")
    files = [p for p in (tmp_path / "out").rglob("*") if p.suffix in (".html", ".md", ".csv", ".tex")]
    assert len(files) > 3
    assert not [p for p in files if re.search(r"\bnan\b", p.read_text())]


def test_clean_accuracy_is_shown_only_once_all_images_are_evaluated(tmp_path):
    store = two_attacks(tmp_path / "s")
    change(store, data=replace(store.manifest.data, images=20), shard_size=10)
    assert first_row(tmp_path)["clean"].text == "-"
