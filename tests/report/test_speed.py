"""Tables 9 and 10 from records of `robustdeq bench`, and what Missing says of them and of trainings."""

import json
import re
from pathlib import Path

import pytest

from robustdeq import create_model
from robustdeq.cli.main import main
from robustdeq.report import find_sources, make_report, make_tables, paper
from robustdeq.report.figures import make_figures
from robustdeq.report.missing import missing_experiments
from tests.report.results import two_attacks

RECORDS = Path(__file__).parents[2] / "benchmarks"
ENVIRONMENT = {"hardware": {"machine": "a machine"}, "commit": "abc"}


def record(name, speed, **fields):
    timing = {"name": name, "model": "m", "batch": 4, "ours": 1 / speed, "plain": 1.0, "speedup": speed}
    return {**timing, "samples_per_second": speed, "environment": ENVIRONMENT, **fields}


def write(path, *records):
    path.write_text(json.dumps(records))
    return path


def rows_of(folders, name):
    found = [table for table in make_tables(find_sources(folders)) if table.name == name]
    return [{k: cell.shown for k, cell in zip(t.head, row, strict=True)} for t in found for row in t.rows]


def items(folders):
    return {m.item: m for m in missing_experiments(find_sources(folders))}


def test_table_9_compares_random_states_with_the_baseline_of_the_same_inner_attack(tmp_path):
    old = [record("trades", 2.0), record("trades + random", 3.0), record("trades + random, carried J=1", 9.0)]
    new = record("trades, carried J=1", 6.0, objective="trades", states="final", inner="carried", iterations=1)
    short = record(
        "trades, carried J=1, unroll 2", 7.0, objective="trades", states="final", inner="carried", iterations=1
    )
    file = write(tmp_path / "speed.json", *old, new, short)
    keys = ("training", "method", "inner attack", "images/s", "over baseline", "paper: images/s", "machine")
    assert [tuple(r[key] for key in keys) for r in rows_of([file], "table-9")] == [
        ("TRADES", "baseline", "cold", "2.00", "-", "(24.00)", "a machine"),
        ("TRADES", "+ Sec. 3.3", "cold", "3.00", "1.50", "(30.60)", "a machine"),
        ("TRADES", "+ Sec. 3.3", "carried, J = 1", "9.00", "1.50", "(30.60)", "a machine"),
        ("TRADES", "baseline", "carried, J = 1", "6.00", "-", "(24.00)", "a machine"),
        ("TRADES", "baseline", "carried, J = 1, unroll 2", "7.00", "-", "(24.00)", "a machine"),
    ]
    assert "PGD-AT baseline, PGD-AT + Sec. 3.3;" in items([file])["Table 9"].what


def test_table_10_is_a_matrix_of_t_f_by_r_from_the_rows_of_its_grid(tmp_path):
    main = record("defended T_f=2 R=10", 5.0, every=2, steps=10, grid=False)
    grid = [record("defended T_f=2 R=10, grid", 4.0), record("defended T_f=2 R=0, grid", 40.0)]
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "defence.json", main, *grid)
    (row,) = rows_of([tmp_path / "folder"], "table-10")
    assert (row["T_f"], row["R = 0"], row["R = 10"], row["paper: R = 10"]) == ("2", "40.00", "4.00", "(11.70)")
    assert "18 of the 20 pairs" in items([tmp_path])["Table 10"].what
    write(tmp_path / "folder" / "defence.json", main)
    assert rows_of([tmp_path], "table-10")[0]["R = 10"] == "5.00"  # the only one


def test_the_records_under_version_control_fill_both_tables():
    assert {(r["training"], r["method"]) for r in rows_of([RECORDS], "table-9")} == set(paper.TABLE_9)
    rows = rows_of([RECORDS], "table-10")
    assert {r["T_f"] for r in rows} == {"1", "2", "4", "8"}
    assert all(r[f"R = {steps}"] != "-" for r in rows for steps in (0, 1, 5, 10, 20))
    assert not {"Table 9", "Table 10"} & items([RECORDS]).keys()


def test_records_may_stand_beside_stores_and_other_json_files(tmp_path):
    two_attacks(tmp_path / "s")
    write(tmp_path / "train.json", record("pgdat", 1.0))
    (tmp_path / "other.json").write_text('[{"name": "something else"}]')
    (tmp_path / "broken.json").write_text("[")
    sources = find_sources([tmp_path])
    assert ([r.label for r in sources.results], [b.label for b in sources.benchmarks]) == (["s"], ["train.json"])
    assert "Table 9" in items([tmp_path])  # TRADES and random states are not there
    assert {t.name for t in make_report([tmp_path]).tables} >= {"table-1", "table-9"}


def test_a_file_that_holds_no_records_is_refused(tmp_path):
    file = write(tmp_path / "x.json", {"name": "f"})
    with pytest.raises(
        ValueError, match=r"x\.json holds no records: expected a file that robustdeq bench --json wrote"
    ):
        find_sources([file])


def test_other_json_files_among_the_files_given_are_left_out_with_a_warning(tmp_path, capsys):
    write(tmp_path / "speed.json", record("trades", 2.0))
    (tmp_path / "other.json").write_text('{"records": []}')
    files = [tmp_path / "other.json", tmp_path / "speed.json"]
    with pytest.warns(UserWarning, match=r"other\.json holds no records: .*; it is left out"):
        assert [b.label for b in find_sources(files).benchmarks] == ["speed.json"]
    assert main(["report", *map(str, files), "--out", str(tmp_path / "report")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"robustdeq: warning: {files[0]} holds no records")


@pytest.mark.parametrize("damage", ["cut off", "without a field"])
def test_records_given_by_name_that_are_damaged_stop_a_report(tmp_path, damage):
    good, file = write(tmp_path / "good.json", record("trades", 2.0)), tmp_path / "speed.json"
    whole = record("trades", 2.0)
    write(file, {name: value for name, value in whole.items() if name != "plain"})
    if damage == "cut off":
        file.write_text(write(file, whole).read_text()[:-5])
    reason = {"cut off": "holds no records", "without a field": "is damaged (ValueError: record 1 has no plain)"}
    with pytest.raises(ValueError, match=re.escape(f"{file} {reason[damage]}")):
        find_sources([good, file])


def training(folder, weight, *, objective="trades", model="mdeq-nano", states="final", **options):
    folder.mkdir(parents=True)
    config = {"model": {"name": model, "options": options}, "objective": {"kind": objective, "states": states}}
    (folder / "run.json").write_text(json.dumps({"config": {**config, "jacobian": {"weight": weight}}}))
    lines = ["step,epoch,validation_clean,validation_pgd", "1,0,,", "2,0,0.5,0.2", "3,1,0.6,0.3"]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.usefixtures("undrawn")
def test_figure_6_is_missing_until_one_objective_has_two_jacobian_weights(tmp_path):
    def figures():
        return [f.name for f in make_figures(find_sources([tmp_path]))]

    training(tmp_path / "a", 0.4)
    training(tmp_path / "b", 2.0, objective="pgdat")  # of another objective
    training(tmp_path / "c", 2.0, states="random")  # of another method
    training(tmp_path / "d", 2.0, model="mdeq")  # of another model
    missing = [m for m in missing_experiments(find_sources([tmp_path])) if m.item == "Fig. 6"]
    assert [m.what.split()[0] for m in missing] == ["PGD-AT", "TRADES"]
    assert missing[1].what.endswith("of mdeq-nano there is 0.4")
    assert "--recipe digits-nano-trades --jacobian.weight 2.0 --out" in missing[1].command
    assert (figures(), "Fig. 4" in items([tmp_path])) == (["figure-4"], False)
    training(tmp_path / "e", 2.0)
    missing = [m for m in missing_experiments(find_sources([tmp_path])) if m.item == "Fig. 6"]
    assert [m.what.split()[0] for m in missing] == ["PGD-AT"]
    assert "--jacobian.weight 0.4 --out" in missing[0].command
    assert figures() == ["figure-4", "figure-6-TRADES--mdeq-nano"]


@pytest.mark.usefixtures("undrawn")
def test_a_training_by_all_sizes_of_a_named_model_is_one_of_that_model(tmp_path):
    sizes = create_model("mdeq-thin").architecture.options
    training(tmp_path / "a", 0.4, model="mdeq", **{name: sizes[name] for name in sizes if name != "num_classes"})
    missing = [m for m in missing_experiments(find_sources([tmp_path])) if m.item == "Fig. 6"]
    assert missing[1].what.endswith("of mdeq-thin there is 0.4")
    assert "--recipe cifar10-tiny-trades --jacobian.weight 2.0 --out" in missing[1].command
    assert "weight 0.4" not in missing[1].command
    training(tmp_path / "b", 2.0, model="mdeq-thin")
    assert [f.name for f in make_figures(find_sources([tmp_path]))] == ["figure-4", "figure-6-TRADES--mdeq-thin"]


@pytest.mark.parametrize(
    "damage",
    [
        {"samples_per_second": 0},
        {"samples_per_second": "fast"},
        {"samples_per_second": float("nan")},
        {"environment": []},
        {"batch": float("inf")},
        {"inner": "carried"},
    ],
)
def test_a_damaged_record_names_its_file(tmp_path, damage):
    file = write(tmp_path / "speed.json", record("trades", 2.0), record("trades + random", 2.0) | damage)
    with pytest.raises(ValueError, match=re.escape(f"{file} is damaged")):
        find_sources([tmp_path])


def test_other_things_named_json_do_not_stop_a_report(tmp_path):
    write(tmp_path / "speed.json", record("trades", 2.0))
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert [b.label for b in find_sources([tmp_path]).benchmarks] == ["speed.json"]
