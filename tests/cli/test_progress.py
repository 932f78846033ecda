"""How far a command is: a bar on a terminal, lines in a log."""

import io
import time

import pytest
from rich.console import Console

from robustdeq.cli import progress
from robustdeq.cli.progress import counting, saying, sharing


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when it is told to."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def log():
    return Console(file=io.StringIO(), width=40)


def lines(console):
    return console.file.getvalue().splitlines()


def test_a_log_has_a_line_now_and_then_with_the_newest_words_and_where_it_ended(clock):
    console = log()
    with counting(console) as count:
        for step in range(101):
            count(f"loss {step / 100:.2f} [not markup] and words past the width", step, 100)
            clock[0] += 1
    words = "[not markup] and words past the width"
    assert lines(console) == [
        f"0:00:02  2 of 100  loss 0.02 {words}",
        f"0:00:32  32 of 100  loss 0.32 {words}",
        f"0:01:02  62 of 100  loss 0.62 {words}",
        f"0:01:32  92 of 100  loss 0.92 {words}",
        f"0:01:41  100 of 100  loss 1.00 {words}",
    ]


def test_a_long_command_does_not_fill_its_log(clock):
    console = log()
    with counting(console) as count:
        for second in range(0, 86_400, 10):
            count("attack", second, 86_400)
            clock[0] += 10
    assert 300 < len(lines(console)) < 500
    assert lines(console)[-1] == "24:00:00  86,390 of 86,400  attack"


def test_a_command_that_is_long_at_one_thing_says_at_what(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.05)
    console = log()
    with saying(console) as say:
        say("reading the results")
        end = time.monotonic() + 20
        while not lines(console) and time.monotonic() < end:
            time.sleep(0.01)
    assert lines(console) == ["0:00:00  reading the results"]


def test_a_short_command_says_nothing(clock):
    console = log()
    with saying(console) as say:
        say("reading")
        clock[0] += 1
        say("writing")
    assert lines(console) == []


def test_words_are_in_the_log_before_an_error_ends_the_command(clock):
    console = log()

    def command():
        with saying(console) as say:
            clock[0] += 3
            say("one")
            say("two")
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        command()
    assert lines(console) == ["0:00:03  one", "0:00:03  two"]


def test_other_processes_than_the_first_are_silent(clock):
    console = Console(file=io.StringIO(), quiet=True)
    with counting(console) as count:
        clock[0] += 10
        count("loss", 1, 2)
    assert lines(console) == []


def test_a_log_says_of_what_is_done_side_by_side_how_far_each_is_and_what_is_left(clock):
    console = log()
    with sharing(console) as share:
        for second in range(40):
            share({"train [a]": 0.5 + second / 100, "train b": second / 50})  # half of a was done by an earlier command
            clock[0] += 1
        share({})
    assert lines(console) == [
        "0:00:02  train [a]: 52%, 0:00:48 left; train b: 4%, 0:00:48 left",
        "0:00:32  train [a]: 82%, 0:00:18 left; train b: 64%, 0:00:18 left",
    ]


def test_a_terminal_has_a_bar_for_each_of_what_is_done_side_by_side():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with sharing(console) as share:
        share({"train [a]": 0.5, "train b": 0.25})
        share({"train b": 0.75})
    last = console.file.getvalue().splitlines()[-2]
    assert "train [a]" in console.file.getvalue()
    assert "train b" in last
    assert "75 %" in last


def test_a_terminal_has_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with counting(console) as count:
        count("loss 0.5", 3, 10)
    shown = console.file.getvalue()
    assert "loss 0.5" in shown
    assert "3/10" in shown


def test_a_terminal_has_a_spinner_for_words():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with saying(console) as say:
        say("measuring f")
    assert "measuring f" in console.file.getvalue()
