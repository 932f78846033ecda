"""`robustdeq quickstart`: the commands it runs, and on a machine with time the whole of it."""

import io
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.measure import Measurement
from tests.report.results import two_attacks

from robustdeq.cli import quickstart
from robustdeq.cli.main import build_parser, main
from robustdeq.recipes import load_recipe
from robustdeq.report import find_sources, make_tables
from robustdeq.report.table import Cell
from robustdeq.training.logs import read_log


def steps(out):
    return [step for name, recipe in quickstart.ARMS.items() for step in quickstart._arm(name, recipe, Path(out))]


def test_it_runs_the_commands_that_a_user_would_type(tmp_path):
    found = [build_parser().parse_args(step.words, defaults=False) for step in steps(tmp_path)]
    assert [words.verb for words in found] == ["train", "evaluate", "train", "evaluate", "evaluate"]
    grids = [words.evaluate for words in found if words.verb == "evaluate"]
    suite = str(tmp_path / "suite.yaml")
    assert [(g.suite, g.limit, g.defence) for g in grids] == [
        (suite, 50, "entropy"),
        (suite, 50, "entropy"),
        ("audit-reduced", 10, "entropy"),
    ]
    first, second = (load_recipe(words.train.recipe).objective for words in found if words.verb == "train")
    assert (first.kind, first.states, second.kind, second.states) == ("trades", "final", "trades", "random")


def test_progress_is_read_off_what_a_command_has_written(tmp_path):
    train, grid = steps(tmp_path)[:2]
    assert (train.share(), grid.share()) == (0.0, 0.0)
    train.out.mkdir(parents=True)
    header = "step,epoch,phase,lr,loss,ce,kl,jacobian,train_accuracy,validation_clean,validation_pgd\n"
    (train.out / "metrics.csv").write_text(header + "24,2,train,1,1,1,1,,1,,\n")
    assert train.share() == 0.25
    for recipe in quickstart.ARMS.values():  # of 1,200 training digits
        schedule = load_recipe(recipe).schedule
        assert 1200 // schedule.batch_size * schedule.epochs == quickstart.STEPS
    two_attacks(grid.out)
    assert grid.share() == 1.0


def test_the_table_is_the_report_s_first(tmp_path):
    two_attacks(tmp_path / "s", defended=True)
    table = next(t for t in make_tables(find_sources([tmp_path])) if t.name == "table-1")
    shown = io.StringIO()
    Console(width=quickstart.WIDTH, file=shown).print(quickstart._shown(table))
    assert "s (base)" in shown.getvalue()
    cells = [cell for row in table.rows for cell in row if cell.small]
    assert len(cells) == 6  # clean, PGD and union of two predictors
    assert all(cell.text in shown.getvalue() and cell.small in shown.getvalue() for cell in cells)
    names = {"s": "results/trades-random", "s (base)": "results/trades-random (base)"}  # as long as it gets
    long = replace(table, rows=[[Cell(names[row[0].text]), *row[1:]] for row in table.rows])
    measured = Measurement.get(Console(width=200), Console(width=200).options, quickstart._shown(long))
    assert measured.maximum <= quickstart.WIDTH


def test_a_step_that_fails_is_named_with_its_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "ARMS", {"trades": "no-such-recipe"})
    assert main(["quickstart", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "train trades failed" in error
    assert "no recipe named no-such-recipe" in error


@pytest.mark.long
def test_interrupted_it_ends_its_commands(tmp_path):
    command = [sys.executable, "-m", "robustdeq.cli.main", "quickstart", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    logs = [tmp_path / f"{name}.train.log" for name in quickstart.ARMS]
    deadline = time.monotonic() + 120
    while not all(read_log(tmp_path / name) for name in quickstart.ARMS):  # both have taken a step
        assert time.monotonic() < deadline
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    assert all("SIGTERM: saved at step" in log.read_text() for log in logs)


@pytest.mark.slow
def test_the_whole_of_it_and_the_same_report_again(tmp_path, capsys):
    out = tmp_path / "quick"
    assert main(["quickstart", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "trades-random (base)" in text
    assert "in all" in text
    tables = {table.name: table for table in make_tables(find_sources([out]))}
    assert tables["table-2"].rows
    assert len(list(out.glob("results/trades/attacks/*"))) == 145
    assert main(["report", str(out), "--out", str(tmp_path / "again")]) == 0
    first = sorted(p for p in (out / "report").rglob("*") if p.is_file())
    assert len(first) > 10
    for path in first:
        assert (tmp_path / "again" / path.relative_to(out / "report")).read_bytes() == path.read_bytes(), path
