"""Reports from stores whose outcomes are known."""

import base64
import csv
import io
import json
import re
import shlex
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustdeq.cli.main import main
from robustdeq.evaluation import Store
from robustdeq.evaluation.store.manifest import AttackRecord, SuiteRequest
from robustdeq.report import find_sources, make_tables, write_report
from robustdeq.report.figures.drawing import draw
from robustdeq.report.formats import as_latex
from robustdeq.report.images import make_pages
from robustdeq.report.missing import missing_experiments
from robustdeq.report.tables.table import Cell, Table
from tests.report.results import (
    attack,
    autoattack,
    change,
    grid_attack,
    make_store,
    two_attacks,
    whole_grid,
    write_audit,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a store a/s of a defended model under the whole grid, images kept, and its report out/."""
    folder = tmp_path_factory.mktemp("report")
    two_attacks(folder / "a" / "s", keep=True, defended=True, whole=True)
    write_report([folder / "a" / "s"], folder / "out")
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The tables of `two_attacks` as it is by default, in a store s."""
    folder = tmp_path_factory.mktemp("plain")
    two_attacks(folder / "s")
    return tables(folder)


def tables(*folders):
    return {table.name: table for table in make_tables(find_sources(folders))}


def row(table, k=0):
    return dict(zip(table.head, table.rows[k], strict=True))


def test_table_1_has_the_minimum_over_attacks_and_the_union_over_images(plain):
    first = row(plain["table-1"])
    shown = {name: first[name].text for name in ("clean", "PGD", "AA", "PGD, AA", "union")}
    # image 0 is wrong anyway; the attacks break 1-3 and 2-5
    assert shown == {"clean": "90.00", "PGD": "50.00", "AA": "-", "PGD, AA": "-", "union": "40.00"}
    assert (first["training"].text, first["method"].text, first["model"].text) == ("TRADES", "baseline", "mdeq-nano")


def test_the_lower_of_pgd_and_autoattack_has_a_column(tmp_path):
    specs = grid_attack(1, 1, 1.0) | autoattack("aa-ready")
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "aa-ready": [0, 1, 2]}, specs=specs)
    first = row(tables(tmp_path)["table-1"])
    assert (first["PGD"].text, first["AA"].text, first["PGD, AA"].text) == ("90.00", "70.00", "70.00")


@pytest.mark.parametrize(("limit", "said"), [(5, True), (10, False), (None, False)])
def test_an_attack_on_the_first_images_only_is_named_in_a_note(tmp_path, limit, said):
    aa = autoattack("aa-ready", limit=limit)
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "aa-ready": [0, 1, 2]}, specs=grid_attack(1, 1, 1.0) | aa)
    notes = " ".join(tables(tmp_path)["table-1"].notes)
    assert ("aa-ready on the first 5 of s" in notes) == said
    assert ("Attacks on some of the images" in notes) == said
    assert ("There AA is measured on these images only" in notes) == said


def test_only_a_limited_autoattack_is_said_to_be_an_accuracy_over_fewer_images(tmp_path):
    specs = grid_attack(1, 1, 1.0) | attack("square", "table4", attack="square", options={}, oracle="direct", limit=5)
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "square": [1]}, specs=specs)
    notes = " ".join(tables(tmp_path)["table-1"].notes)
    assert "square on the first 5 of s" in notes
    assert "Such an AA" not in notes


@pytest.mark.usefixtures("small_files")
def test_numbers_of_the_paper_are_marked_where_they_cannot_be_compared(plain, tmp_path):
    first = row(plain["table-1"])
    assert (first["paper: clean"].text, first["paper: clean"].kind) == ("74.92", "apart")
    assert first["comparable"].text == "no: model mdeq-nano, data digits, Linf eps 0.15, 2 of the 144 attacks"
    same = {"model": "mdeq-large", "data": "cifar10", "eps": 8 / 255}
    two_attacks(tmp_path / "few" / "few", **same)
    assert row(tables(tmp_path / "few")["table-1"])["comparable"].text == "no: 10 images, 2 of the 144 attacks"
    whole_grid(tmp_path / "whole" / "whole", **same, declared=10_000)
    first = row(tables(tmp_path / "whole")["table-1"])
    assert (first["paper: PGD"].kind, first["comparable"].text) == ("paper", "yes")


@pytest.mark.parametrize(
    ("changes", "method", "clean"),
    [
        ({"defended": True}, "+ Sec. 3.2", "73.80"),
        ({"states": "random"}, "+ Sec. 3.3", "77.64"),
        ({"defended": True, "states": "random"}, "+ Sec. 3.2 & 3.3", "78.89"),
        ({"objective": "pgdat"}, "baseline", "77.89"),
    ],
)
def test_a_store_is_shown_beside_its_own_row_of_the_paper(tmp_path, changes, method, clean):
    two_attacks(tmp_path / "s", **changes)
    shown = tables(tmp_path)["table-1"]
    methods = {r["method"].text: r["paper: clean"].text for r in (row(shown, k) for k in range(len(shown.rows)))}
    assert methods[method] == clean  # beside it may stand the base of a defended one


def test_a_model_of_unknown_training_is_shown_without_numbers_of_the_paper(tmp_path):
    two_attacks(tmp_path / "s", objective=None)
    table = tables(tmp_path)["table-1"]
    assert not [name for name in table.head if name.startswith("paper") or name == "comparable"]
    assert row(table)["training"].text == "unknown"


def test_table_2_shows_final_minus_intermediate(plain):
    second = row(plain["table-2"])
    assert (second["final"].text, second["intermediate"].text, second["difference"].text) == ("80.00", "50.00", "30.00")


def test_tables_6_and_7_have_the_sign_of_the_paper(plain):
    third = row(plain["table-6-7"])
    assert third["P, mean"].text == "100.00"
    assert third["dH, mean"].text == "-0.5000"  # clean minus attacked
    assert third["paper: dH, mean"].text == "-0.1174"


def test_table_8_names_the_strongest_unrolling_at_each_state(plain):
    table = plain["table-8"]
    half, one = row(table, 0), row(table, 1)
    assert (half["lambda"].text, half["i = 1"].text, half["i = 1"].beside) == ("0.5", "60.00", "K_a 3")
    assert (one["lambda"].text, one["i = 2"].text, one["i = 2"].beside) == ("1", "50.00", "K_a 1")
    assert half["i = 2"].text == "-"


def test_both_readings_of_the_last_state_but_one_are_shown_with_the_final_state(plain):
    table = plain["states"]
    found = [row(table, k) for k in range(3)]
    assert [cells["state"].text for cells in found] == ["z^[1]", "z^[2]", "final"]
    assert [cells["PGD"].text for cells in found] == ["50.00"] * 3  # these stores hold the same at every state
    assert "predictor deployed, state 1; clean, share with correct" in found[0]["clean"].where


def test_every_number_of_ours_says_where_it_comes_from(written):
    for table in make_tables(find_sources([written / "a"])):
        for cell in (cell for cells in table.rows for cell in cells if cell.kind == "ours"):
            assert cell.where.startswith("store s: "), (table.name, cell)
    record = list(csv.DictReader(io.StringIO((written / "out" / "tables" / "table-1.csv").read_text())))[-1]
    assert record["PGD"] == "50.00"
    assert "PGD: store s: grid; predictor deployed, deployed state; minimum over 36 attacks" in record["where from"]


def test_a_store_without_the_grid_or_made_with_union_leaves_gaps_and_names_the_command(tmp_path):
    make_store(tmp_path / "quick", {"pgd-ready": [1]}, specs=attack("pgd-ready", "ready"))
    two_attacks(tmp_path / "union", union=True, states="random")
    table = tables(tmp_path)["table-1"]
    assert [cells[table.head.index("PGD")].text for cells in table.rows] == ["-", "-"]
    commands = [m.command for m in missing_experiments(find_sources([tmp_path]))]
    assert f"robustdeq evaluate runs/some/best --limit 10 --suite grid --out {tmp_path / 'quick'}" in commands
    assert any("--suite paper --out OTHER" in command for command in commands)


def test_the_page_of_images_shows_the_kept_pixels_of_the_most_broken_image(tmp_path):
    two_attacks(tmp_path / "s", keep=True, defended=True)
    (page,) = make_pages(find_sources([tmp_path]))
    ((_, pictures),) = page.groups
    assert [p.number for p in pictures[:3]] == [3, 2, 1]  # broken twice, lower margin first; then once
    assert (pictures[0].broken_by, pictures[0].of) == (2, 3)
    clean, shown = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(png)))) for png in (pictures[0].clean_png, pictures[0].png)
    )
    expected = np.rint(np.arange(3 * 64, 4 * 64).reshape(8, 8) / 640 * 255)
    assert np.array_equal(shown, expected)
    assert np.abs(clean + expected - 255).max() <= 1  # the store's clean images are the attacked ones inverted
    # entropy at z[2]: clean 0.2, attacked 0.7, defended 0.5
    assert "clean 0.20, attacked 0.70, defended 0.50" in pictures[0].traces.alt


def test_a_store_accepts_the_commands_that_are_printed_for_it(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(
        "{include: [quick], attacks: [{name: two, attack: pgd, options: {steps: 2, step_size: 0.1}}]}"
    )
    flags = ["--limit=3", "--eps=0.2", "--batch-size=2", "--shard-size=2", "--seed=5", "--state=2", "--device=cpu"]
    own = [
        "--defence=entropy",
        "--defence.steps=1",
        "--aware",
        f"--suite={tmp_path / 'mine.yaml'}",
        f"--out={tmp_path / 's'}",
    ]
    assert main(["evaluate", "tests.evaluation.predictors:small_deq", *flags, *own]) == 0
    Store(tmp_path / "s").path("two", 1).unlink()
    found = {m.item: m.command for m in missing_experiments(find_sources([tmp_path / "s"]))}
    assert main(shlex.split(found["all"])[1:]) == 0, capsys.readouterr()
    assert "all" not in {m.item for m in missing_experiments(find_sources([tmp_path / "s"]))}
    assert main([*shlex.split(found["Table 4"])[1:], "--budget=0"]) == 0, capsys.readouterr()
    assert "Table 4" not in {m.item for m in missing_experiments(find_sources([tmp_path / "s"]))}  # it is planned now


@pytest.mark.usefixtures("small_files")
def test_a_defence_unlike_that_of_the_paper_is_marked_and_its_switches_are_in_the_command(tmp_path):
    same = {"model": "mdeq-large", "data": "cifar10", "eps": 8 / 255, "declared": 10_000, "defended": True}
    two_attacks(tmp_path / "s", **same, switches={"direction": "gradient", "resolve": False})
    defended = row(tables(tmp_path)["table-1"], 1)  # under its base
    assert defended["method"].text == "+ Sec. 3.2, variant paper along the gradient, as printed, with resolve false"
    # not a deviation from the text, but from what the paper's numbers were made by
    printed = "Eq. 8 along the raw gradient, as the paper's text prints it (its numbers were made along the sign, by "
    assert f"{printed}its code), with resolve false" in defended["comparable"].text
    assert "variant" not in defended["comparable"].text
    (command,) = {m.command for m in missing_experiments(find_sources([tmp_path])) if m.what == "s: AutoAttack"}
    assert "--defence entropy --defence.direction gradient --defence.resolve false --suite" in command


@pytest.mark.usefixtures("undrawn")
def test_a_report_removes_the_files_of_an_earlier_one_and_no_others(tmp_path):
    out, outside = tmp_path / "out", tmp_path / "outside"
    two_attacks(tmp_path / "results" / "a", keep=True)
    write_report([tmp_path / "results"], out)
    (page,) = out.glob("images-*.html")
    (out / "mine.html").write_text("mine")
    outside.write_text("outside")
    with open(out / ".robustdeq-report", "a") as file:
        file.write("../outside\n")
    two_attacks(tmp_path / "other" / "b")
    write_report([tmp_path / "other"], out)
    assert not page.exists()
    assert ((out / "mine.html").read_text(), outside.read_text()) == ("mine", "outside")
    fresh = tmp_path / "fresh"
    write_report([tmp_path / "other"], fresh)
    assert {p.name for p in out.rglob("*")} - {"mine.html"} == {p.name for p in fresh.rglob("*")}


def test_the_same_results_give_the_same_bytes(written, tmp_path):
    write_report([written / "a"], tmp_path)
    one, two = (sorted(p for p in folder.rglob("*") if p.is_file()) for folder in (written / "out", tmp_path))
    assert [p.relative_to(written / "out") for p in one] == [p.relative_to(tmp_path) for p in two]
    assert len(one) > 10
    for left, right in zip(one, two, strict=True):
        assert left.read_bytes() == right.read_bytes(), left


class Checker(HTMLParser):
    VOID = ("meta", "link", "img", "br", "path", "use", "rect", "input")

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.ids, self.links = [], [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "svg":
            assert found["role"] == "img"
            assert len(found["aria-label"]) > 20
        if tag == "img":
            assert len(found["alt"]) > 10
        self.loaded += [found[key] for key in ("src", "srcset") if key in found]
        self.links += [found["href"]] if tag in ("a", "link") else []
        self.ids += [found["id"]] if "id" in found and tag != "path" else []

    def handle_startendtag(self, tag, attributes):
        if tag not in self.VOID:
            self.handle_starttag(tag, attributes)
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_pages_are_whole_self_contained_and_their_links_lead_somewhere(written):
    index = written / "out" / "index.html"
    for path in index.parent.glob("*.html"):
        checker = Checker()
        checker.feed(path.read_text())
        assert checker.open == []
        assert all(source.startswith("data:") for source in checker.loaded)
        for link in checker.links:
            if link.startswith("#"):
                assert link[1:] in checker.ids
            else:
                assert link == "data:," or (index.parent / link).is_file()
    assert "a note &lt;&amp;&gt; to escape" in index.read_text()


def test_figures_have_the_colour_of_the_page_and_no_date(written):
    drawings = sorted((written / "out" / "figures").glob("*.svg"))
    names = {p.name for p in drawings}
    assert {"figure-3a.svg", "figure-3c.svg"} <= names
    assert any(name.startswith("figure-3b-") for name in names)
    for path in drawings:
        text = path.read_text()
        assert "currentColor" in text
        assert "#010203" not in text
        assert not re.search(r"20\d\d-\d\d-\d\d", text)


def test_validation_curves_come_from_the_training_log(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"config": {}}))
    header = "step,epoch,phase,lr,loss,ce,kl,jacobian,train_accuracy,validation_clean,validation_pgd\n"
    lines = ["1,0,train,1,1,1,1,,1,,\n", "2,0,train,1,1,1,1,,1,0.5,0.25\n", "4,1,train,1,1,1,1,,1,0.75,0.5\n"]
    (run / "metrics.csv").write_text(header + "".join(lines))
    (found,) = find_sources([run]).runs
    assert found.validation() == [(1.0, 0.5, 0.25), (2.0, 0.75, 0.5)]
    index = write_report([run], tmp_path / "out")
    assert "run 50.0 percent at the end" in index.read_text()


@pytest.mark.parametrize("name", ["back\\slash", "\\1", "\\g<0>", "<b>"])
def test_a_figure_says_any_name_as_it_is(name):
    figure = draw("f", name, f"about {name}", lambda axes: axes.plot([0, 1], [0, 1], label=name))
    assert f'aria-label="about {escape(name)}"><title>{escape(name)}</title>' in figure.svg


def test_folders_of_the_same_name_are_labelled_by_longer_paths(tmp_path):
    for parent in ("a", "b"):
        two_attacks(tmp_path / parent / "results")
    assert [r.label for r in find_sources([tmp_path]).results] == ["a/results", "b/results"]


def test_latex_escapes_special_characters():
    text = as_latex(Table("t", "100 % of a_b", ["x & y"], [[Cell("{~^\\#$}")]]))
    assert r"\caption{100 \% of a\_b}" in text
    assert r"x \& y \\" in text
    assert r"\{\textasciitilde{}\textasciicircum{}\textbackslash{}\#\$\}" in text


def test_a_folder_without_results_is_refused_in_one_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere"), f"--out={tmp_path / 'out'}"]) == 1
    assert main(["report", str(tmp_path), f"--out={tmp_path / 'out'}"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("robustdeq: error: no folder ")
    assert "holds no results" in second


@pytest.mark.usefixtures("undrawn")
def test_the_command_report_writes_every_format(tmp_path, capsys):
    two_attacks(tmp_path / "s")
    assert main(["report", str(tmp_path / "s"), "--out", str(tmp_path / "out")]) == 0
    assert "index.html" in capsys.readouterr().out
    kinds = {Path(p).suffix for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert {".html", ".md", ".csv", ".tex", ".svg"} <= kinds


def test_a_defended_store_shows_its_undefended_base_too(tmp_path):
    two_attacks(tmp_path / "s", defended=True)
    found = tables(tmp_path)
    table = found["table-1"]
    assert [(cells[0].text, cells[2].text) for cells in table.rows] == [("s (base)", "baseline"), ("s", "+ Sec. 3.2")]
    assert "predictor base" in row(table)["PGD"].where
    assert [cells[2].text for cells in found["table-6-7"].rows] == ["baseline"]


def test_a_base_with_a_store_of_its_own_is_shown_once(tmp_path):
    two_attacks(tmp_path / "defended", defended=True)
    two_attacks(tmp_path / "plain")
    table = tables(tmp_path)["table-1"]
    assert [(cells[0].text, cells[2].text) for cells in table.rows] == [
        ("defended", "+ Sec. 3.2"),
        ("plain", "baseline"),
    ]


def test_an_audit_is_judged_again_from_its_store_and_shown_with_every_flag(tmp_path):
    specs = attack("pgd-ready", "ready") | attack("pgd-100", "audit", options={"steps": 100})
    broken = {"pgd-ready": range(5), "pgd-100": range(1, 5)}  # one image of ten by the short attack alone
    store = make_store(tmp_path / "s", broken, specs=specs, dynamic=False)  # random: judged in expectation
    write_audit(store, random=1.0)
    found = tables(tmp_path)
    audit = row(found["audit"])
    assert (audit["union"].text, audit["base: union"].text, audit["cost"].text) == ("50.00", "-", "40.0")
    assert (audit["verdict"].text, audit["flags raised"].text) == ("undecided", "randomness")
    assert "more-steps-hurt" in audit["flags undecided"].text
    assert "about" in audit["verdict"].small
    flags = {cells[3].text: cells[4:] for cells in found["flags"].rows}
    state, measured, limit, images, decides, masking = flags["more-steps-hurt"]
    assert (state.text, measured.text, limit.text, images.text, masking.text) == ("undecided", "10.0", "2", "10", "yes")
    assert int(decides.text) > 10
    assert flags["randomness"][0].text == "raised"


def test_attacks_at_another_radius_do_not_count_for_the_union(tmp_path):
    specs = grid_attack(1, 1, 1.0) | attack("large-eps", "sanity", eps=0.5, options={"step_size": 2 / 255})
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0], "large-eps": range(10)}, specs=specs)
    found = tables(tmp_path)
    assert row(found["table-1"])["union"].text == "90.00"
    other = row(found["attacks"])
    assert (other["eps"].text, other["settings"].text) == ("0.5", "step_size 2/255")


def test_the_union_of_a_base_is_unknown_in_a_union_store_of_its_defence(tmp_path):
    two_attacks(tmp_path / "s", defended=True, union=True)
    table = tables(tmp_path)["table-1"]
    found = {row(table, k)["method"].text: row(table, k)["union"].text for k in range(len(table.rows))}
    assert found == {"baseline": "-", "+ Sec. 3.2": "40.00"}


def test_an_unfinished_store_is_named_with_the_command_that_resumes_it(tmp_path):
    store = two_attacks(tmp_path / "s")
    store.path("pgd-ready", 0).unlink()
    union = row(tables(tmp_path)["table-1"])["union"]
    assert "clean and the 2 finished of 3 attacks" in union.where
    (found,) = [m for m in missing_experiments(find_sources([tmp_path])) if m.item == "all"]
    assert found.what == "s: 1 of 3 attacks; the union without them is an upper bound"
    assert found.command.endswith(f"--suite grid --out {tmp_path / 's'}")


def test_rebuilt_commands_name_files_of_suites_and_aware_attacks(tmp_path):
    store = two_attacks(tmp_path / "s", defended=True)
    attacks = dict(store.manifest.attacks)
    aware = replace(attacks["pgd-i2-K1-l1"].spec, group="grid-aware")
    attacks["pgd-i2-K1-l1"] = AttackRecord(spec=aware, hash=aware.hash)
    asked = [SuiteRequest(suite="my/mine.yaml", aware=True), SuiteRequest(suite="grid")]
    change(store, attacks=attacks, asked=asked, batch_size=50)
    store.path("pgd-ready", 0).unlink()
    found = {m.item: m for m in missing_experiments(find_sources([tmp_path]))}
    first, second = found["all"].command.split("; ")
    assert "--limit 10 --batch-size 50 --defence entropy --aware --suite my/mine.yaml --out" in first
    assert "--defence entropy --suite grid --out" in second
    assert found["Tables 1, 6, 7, 8, Figs. 3a, 5"].what == "s: 35 of the grid's 36 attacks"
