"""Ctrl-C and SIGTERM save first."""

import signal
import time

import pytest

import robustdeq.host.interrupts as signals_module
from robustdeq.host.interrupts import remembering
from tests.training.runs import TORCHRUN, assert_same_run, finish, start, stored_step, wait_for, words


@pytest.fixture
def earlier():
    """Signals that reach the handlers of before, which are put back at the end."""
    reached = []
    handlers = {
        n: signal.signal(n, lambda number, frame: reached.append(number)) for n in (signal.SIGINT, signal.SIGTERM)
    }
    yield reached
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_repeated_signals_are_one_and_a_later_ctrl_c_acts_at_once(earlier, monkeypatch):
    now = 10.0
    monkeypatch.setattr(signals_module.time, "monotonic", lambda: now)
    with remembering() as signals:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert (signals[0], earlier) == (signal.SIGTERM, [])
        now += 2 * signals_module.SAME
        signal.raise_signal(signal.SIGTERM)
        assert earlier == []
        signal.raise_signal(signal.SIGINT)
        assert earlier == [signal.SIGINT]
    signal.raise_signal(signal.SIGTERM)
    assert earlier == [signal.SIGINT, signal.SIGTERM]


# Ctrl-C reaches a whole group: a parent that got it too may send it on, or SIGTERM, while the step is not done
@pytest.mark.long
@pytest.mark.parametrize(
    ("numbers", "code"),
    [((signal.SIGINT, signal.SIGINT, signal.SIGTERM), 130), ((signal.SIGTERM, signal.SIGTERM), 143)],
)
def test_a_signal_saves_the_state_and_the_same_command_goes_on(tmp_path, numbers, code):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    finish(start(words(straight)))

    process = start(words(stopped, "--checkpoint_every=5"))
    wait_for(lambda: (stopped / "metrics.csv").exists() and rows(stopped) >= 6, process)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.01)
    output = finish(process, code=code)
    step = stored_step(stopped)
    assert 6 <= step < 20
    assert rows(stopped) == step  # nothing that was done is lost
    assert f"{numbers[0].name}: saved at step {step} of 20" in output
    finish(start(words(stopped)))

    assert_same_run(straight, stopped)


@pytest.mark.long
def test_a_signal_to_torchrun_saves_the_state_of_all_its_processes(tmp_path):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    finish(start(["robustdeq.cli.main", *words(straight)], program=TORCHRUN))

    process = start(["robustdeq.cli.main", *words(stopped)], program=TORCHRUN)
    wait_for(lambda: (stopped / "metrics.csv").exists() and rows(stopped) >= 6, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    step = stored_step(stopped)
    assert 6 <= step < 20, output
    assert rows(stopped) == step
    assert f"SIGTERM: saved at step {step} of 20" in output
    finish(start(["robustdeq.cli.main", *words(stopped)], program=TORCHRUN))

    assert_same_run(straight, stopped)


def rows(out):
    return (out / "metrics.csv").read_text().count("\n") - 1
