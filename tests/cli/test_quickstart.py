"""`robustdeq quickstart`: the commands it runs, and on a machine with time the whole of it."""

import io
import os
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

from robustdeq.cli import progress, quickstart
from robustdeq.cli.main import build_parser, main
from robustdeq.recipes import load_recipe
from robustdeq.report import find_sources, make_tables
from robustdeq.report.tables.table import Cell
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


class Working:
    """A command that is done after some looks at it."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def exitcode(self):
        self.looks -= 1
        return None if self.looks else 0

    def terminate(self):
        raise AssertionError("it has ended")

    join = terminate


def test_without_a_terminal_it_says_now_and_then_how_far_it_is(monkeypatch):
    monkeypatch.setattr(quickstart, "POLL", 0)
    monkeypatch.setattr(quickstart, "_start", lambda step: Working(3))
    monkeypatch.setattr(quickstart.Step, "share", lambda step: 0.25)
    for name in ("FIRST", "EVERY", "SHARE"):
        monkeypatch.setattr(progress, name, 0.0)
    console = Console(file=io.StringIO(), width=quickstart.WIDTH)
    queues = [quickstart._arm(name, recipe, Path("q"))[:1] for name, recipe in quickstart.ARMS.items()]
    assert quickstart._run_all(queues, console) is None
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "0:00:00  train trades: 25%; train trades-random: 25%"
    assert lines[-2:] == ["    0 s  train trades", "    0 s  train trades-random"]


@pytest.mark.long
# `timeout` reaches the whole group: the commands get SIGTERM from it, and again from us or for the want of us
@pytest.mark.parametrize(("number", "whole_group"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_interrupted_it_ends_its_commands(tmp_path, number, whole_group):
    command = [sys.executable, "-m", "robustdeq.cli.main", "quickstart", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    states = [tmp_path / name / "state.pt" for name in quickstart.ARMS]  # so short a training saves only when stopped
    deadline = time.monotonic() + 120
    while not all(read_log(tmp_path / name) for name in quickstart.ARMS):  # both have taken a step
        assert time.monotonic() < deadline
        time.sleep(0.5)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert f"{number.name}: what was done is in {tmp_path}; the same command goes on" in output
    while not all(state.exists() for state in states):
        assert time.monotonic() < deadline
        time.sleep(0.5)


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
