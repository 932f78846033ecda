"""The command starts at once, and Ctrl-C ends it in one line at any moment."""

import io
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout, suppress

import pytest

from robustdeq.cli.arguments.parser import VERBS, overview
from robustdeq.cli.main import main

HEAVY = ("torch", "polars", "sklearn", "lightning_fabric", "matplotlib")

PROGRAM = f"""
import io, sys
from contextlib import redirect_stdout, suppress
from robustdeq.cli.main import main
for words in ["--version"], ["--help"], *([verb, "--help"] for verb in {VERBS}):
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        main(words)
    loaded = [name for name in {HEAVY} if name in sys.modules]
    assert text.getvalue() and not loaded, (words, loaded)
"""


def test_the_version_and_every_help_import_nothing_heavy():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_the_package_runs_as_the_command():
    done = subprocess.run([sys.executable, "-m", "robustdeq", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == shown("--version")


def shown(*words):
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        main(words)
    return text.getvalue()


def test_the_overview_has_a_line_for_every_command():
    assert shown("--help") == overview() + "\n"
    lines = overview().splitlines()
    for verb in VERBS:
        (line,) = [line for line in lines if line.split()[:1] == [verb]]
        assert len(line.split()) > 4


def test_the_help_of_a_verb_shows_its_parameters_and_the_fields_of_its_configuration():
    text = " ".join(shown("train", "--help").split())
    assert "--recipe RECIPE A name that `robustdeq recipes` lists, or a YAML file; by default" in text
    assert "--out OUT Folder of the run: weights in out/best" in text
    assert "Peak learning rate." in text
    assert "--keep-images Store the adversarial images." in " ".join(shown("evaluate", "--help").split())


@pytest.mark.parametrize("verb", VERBS)
def test_no_help_shows_a_type_of_python_or_a_default_that_is_not_there(verb):
    text = " ".join(shown(verb, "--help").split())
    assert not re.findall(r"<class|type: |default: (?:null|\))|Union\[|Literal\[", text)
    if verb == "report":
        assert "--out OUT Folder of the report. (required, a path)" in text


def test_ctrl_c_while_modules_are_imported_is_one_line(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("robustdeq.cli.arguments.parser.import_module", interrupted)
    assert main(["recipes"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.2, 0.8, 1.6])
def test_ctrl_c_at_any_moment_of_the_start_is_one_line(tmp_path, seconds):
    command = [sys.executable, "-m", "robustdeq.cli.main", "predict", str(tmp_path), "a.png"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert len(error.splitlines()) <= 1, error
    # a fast machine has answered before (1), or its interpreter, which is shutting down, dies of the signal itself
    assert process.returncode in (1, 130, -signal.SIGINT)


@pytest.mark.long
def test_no_traceback_reaches_the_terminal():
    command = [sys.executable, "-m", "robustdeq.cli.main", "predict", "nowhere", "a.png"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert run.stderr.startswith("robustdeq: error: no checkpoint")
