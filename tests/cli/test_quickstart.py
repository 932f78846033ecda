"""`robustdeq quickstart`: the commands it runs; in slow tests, the whole of it."""

import io
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.measure import Measurement
from tests.report.results import two_attacks

from robustdeq.cli import progress, quickstart
from robustdeq.cli.arguments.parser import verb_parser
from robustdeq.cli.main import main
from robustdeq.recipes import load_recipe
from robustdeq.report import find_sources, make_tables
from robustdeq.report.tables.table import Cell
from robustdeq.training.logs import read_log


def steps(out):
    return [step for name in quickstart.ARMS for step in quickstart._arm(name, Path(out))]


def test_it_runs_the_commands_that_a_user_would_type(tmp_path):
    words = [step.words for step in steps(tmp_path)]
    assert [verb for verb, *_ in words] == ["train", "evaluate", "train", "evaluate", "evaluate"]
    options = [verb_parser(verb).parse_words(rest) for verb, *rest in words]
    suite = str(tmp_path / "suite.yaml")
    assert [(found["suite"], found["limit"], found["defence"]) for found in options if "suite" in found] == [
        (suite, 50, "entropy"),
        (suite, 50, "entropy"),
        ("audit-reduced", 100, "entropy"),
    ]
    first, second = (load_recipe(found["recipe"]).objective for found in options if "recipe" in found)
    assert (first.kind, first.states, second.kind, second.states) == ("trades", "final", "trades", "random")


def test_every_command_gets_the_seed():
    for step in quickstart._arm(quickstart.AUDITED_ARM, Path("q"), 7):
        assert verb_parser(step.words[0]).parse_words(step.words[1:])["seed"] == 7


def test_progress_is_read_from_what_a_command_has_written(tmp_path):
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


def test_the_table_shown_is_the_first_of_the_report_and_fits_a_terminal(tmp_path):
    two_attacks(tmp_path / "s", defended=True)
    table = next(t for t in make_tables(find_sources([tmp_path])) if t.name == "table-1")
    shown = io.StringIO()
    Console(width=quickstart.WIDTH, file=shown).print(quickstart._shown(table))
    assert "s (base)" in shown.getvalue()
    cells = [cell for row in table.rows for cell in row if cell.small]
    assert len(cells) == 6  # clean, PGD and union of two predictors
    assert all(cell.text in shown.getvalue() and cell.small in shown.getvalue() for cell in cells)
    names = {"s": "results/trades-random", "s (base)": "results/trades-random (base)"}  # as long as it gets
    # the quickstart runs the whole grid, so that none of its numbers is a bound from a part of it
    whole = [[replace(cell, kind="ours", beside="") for cell in row] for row in table.rows]
    long = replace(table, rows=[[Cell(names[row[0].text]), *row[1:]] for row in whole])
    measured = Measurement.get(Console(width=200), Console(width=200).options, quickstart._shown(long))
    assert measured.maximum <= quickstart.WIDTH


@pytest.fixture
def in_this_process(monkeypatch):
    """Steps run in this process: `start` returns when the command has ended."""

    def start(step):
        step.log.parent.mkdir(parents=True, exist_ok=True)
        with open(step.log, "w") as log, redirect_stdout(log), redirect_stderr(log):
            step.process = SimpleNamespace(exitcode=main(step.words), terminate=lambda: None, join=lambda: None)

    monkeypatch.setattr(quickstart.Step, "start", start)


def test_a_step_that_fails_is_named_with_its_log(tmp_path, monkeypatch, capsys, in_this_process):
    monkeypatch.setattr(quickstart, "ARMS", {"trades": "no-such-recipe"})
    monkeypatch.setattr(quickstart, "POLL", 0)
    assert main(["quickstart", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "train trades failed" in error
    assert "no recipe named no-such-recipe" in error


class Working:
    """A process that ends after it has been looked at some times."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def exitcode(self):
        self.looks -= 0.5  # each round looks twice
        return None if self.looks > 0 else 0

    def terminate(self):
        raise AssertionError("it has ended")

    join = terminate


def test_a_log_shows_how_far_each_of_the_steps_side_by_side_is(monkeypatch):
    def start(step):
        step.process, step.began, step.before = Working(3), progress.time.monotonic() - 10, 0.5

    monkeypatch.setattr(quickstart, "POLL", 0)
    monkeypatch.setattr(quickstart.Step, "start", start)
    monkeypatch.setattr(quickstart.Step, "share", lambda step: 0.75)
    for name in ("FIRST", "EVERY", "SHARE"):
        monkeypatch.setattr(progress, name, 0.0)
    console = Console(file=io.StringIO(), width=quickstart.WIDTH)
    assert quickstart._run_all([quickstart._arm(name, Path("q"))[:1] for name in quickstart.ARMS], console) is None
    lines = console.file.getvalue().splitlines()
    # half of each was done by an earlier command, a quarter by this one
    assert lines[0] == "0:00:00  train trades: 75%, 0:00:10 left; train trades-random: 75%, 0:00:10 left"
    assert lines[-2:] == ["   10 s  train trades", "   10 s  train trades-random"]


@pytest.mark.long
# `timeout` signals the whole process group: the commands get SIGTERM from it, and again from the quickstart
@pytest.mark.parametrize(("number", "whole_group"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_an_interrupt_ends_the_commands_and_they_save(tmp_path, number, whole_group):
    command = [sys.executable, "-m", "robustdeq.cli.main", "quickstart", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    states = [tmp_path / name / "state.pt" for name in quickstart.ARMS]  # so short a training saves only when stopped
    deadline = time.monotonic() + 120
    while not all(read_log(tmp_path / name) for name in quickstart.ARMS):  # both have taken a step
        assert time.monotonic() < deadline
        time.sleep(0.5)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert f"{number.name}: what was done is in {tmp_path}; run the same command again to resume" in output
    while not all(state.exists() for state in states):
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.slow
def test_the_whole_quickstart_and_the_same_report_again(tmp_path, capsys):
    out = tmp_path / "quick"
    assert main(["quickstart", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "trades-random (base)" in text
    assert "in all" in text
    assert f"evaluate {out / 'trades-random' / 'best'} --defence entropy --suite audit --out" in text
    tables = {table.name: table for table in make_tables(find_sources([out]))}
    assert tables["table-2"].rows
    assert len(list(out.glob("results/trades/attacks/*"))) == 145
    assert main(["report", str(out), "--out", str(tmp_path / "again")]) == 0
    first = sorted(p for p in (out / "report").rglob("*") if p.is_file())
    assert len(first) > 10
    for path in first:
        assert (tmp_path / "again" / path.relative_to(out / "report")).read_bytes() == path.read_bytes(), path
