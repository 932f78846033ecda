"""The progress of a command: a bar or a spinner on a terminal, lines in a log."""

import io
import time

import pytest
from rich.console import Console

from robustdeq.cli import progress
from robustdeq.cli.progress import counting, left, saying


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


def test_a_log_has_a_line_now_and_then_and_one_at_the_end(clock):
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


def test_a_step_that_takes_long_is_named_while_it_runs(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.05)
    console = log()
    with saying(console) as say:
        say("reading the results")
        end = time.monotonic() + 20
        while not lines(console) and time.monotonic() < end:
            time.sleep(0.01)
    assert lines(console) == ["0:00:00  reading the results"]


def test_a_short_command_prints_no_progress(clock):
    console = log()
    with saying(console) as say:
        say("reading")
        clock[0] += 1
        say("writing")
    assert lines(console) == []


def test_the_last_words_are_printed_before_an_error_ends_the_command(clock):
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


def test_a_quiet_console_prints_no_progress(clock):
    console = Console(file=io.StringIO(), quiet=True)
    with counting(console) as count:
        clock[0] += 10
        count("loss", 1, 2)
    assert lines(console) == []


def test_words_that_are_taken_back_are_not_printed(clock):
    console = log()
    with saying(console) as say:
        clock[0] += 3
        say("one")
        say("two")
        say("")
    assert lines(console) == ["0:00:03  one"]


def test_the_time_left_follows_from_what_is_done():
    assert (left(0, 9, 0.1), left(3, 9, 60.0), left(0.25, 1.0, 10.0)) == ("", ", 0:02:00 left", ", 0:00:30 left")
    assert (progress.clock(3909.6), progress.clock(59.7)) == ("1:05:10", "0:01:00")


def test_a_terminal_shows_a_bar():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with counting(console) as count:
        count("loss 0.5", 3, 10)
    shown = console.file.getvalue()
    assert "loss 0.5" in shown
    assert "3/10" in shown


def test_a_terminal_shows_a_spinner_with_the_words():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with saying(console) as say:
        say("measuring f")
    assert "measuring f" in console.file.getvalue()
