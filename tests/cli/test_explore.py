"""`robustdeq explore` as a command."""

import http.client
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from PIL import Image

from robustdeq.cli.main import main

DIGITS = "digits-nano-trades-random"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits-nano-trade"], "no checkpoint digits-nano-trade; did you mean digits-nano-trades"),
        ([DIGITS, "--port", "70000"], "--port must be 0 (any free one) to 65535, got 70000"),
        ([DIGITS, "--export", "file"], "file is a file; --export needs a folder"),
        ([DIGITS, "--image", "test:397", "--export", "out"], "there are test images 0 to 396, got '397'"),
        ([DIGITS, "--attack", "math:pi"], "math:pi is a float; expected a class"),
        ([DIGITS, "--defence", "math:tua"], "math:tua: math has no tua; did you mean tau"),
        ([DIGITS, "--host", "192.0.2.1"], "cannot serve at 192.0.2.1:7860: "),
    ],
)
def test_what_cannot_be_served_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["explore", *words, "--no-browser"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"robustdeq: error: {message}")
    assert len(error.splitlines()) == 1


def heed_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def first_page(folder, *words):
    """The page of `robustdeq explore` in a folder, while it is served; ended by Ctrl-C."""
    command = [sys.executable, "-u", "-m", "robustdeq.cli.main", "explore", *words, "--no-browser", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # tests that a shell runs in the background ignore Ctrl-C, and so would what they start
    with subprocess.Popen(command, cwd=folder, preexec_fn=heed_interrupts, **pipes) as server:
        try:
            said = next(line for line in server.stdout if "http" in line)
            connection = http.client.HTTPConnection(re.search(r"http://([\d.:]+)/", said)[1], timeout=60)
            connection.request("GET", "/")
            yield connection.getresponse().read().decode()
            connection.close()
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0
            assert server.stderr.read() == ""
        finally:
            server.kill()


@pytest.mark.long
def test_without_words_it_serves_the_embedded_digits_until_ctrl_c(tmp_path, monkeypatch):
    monkeypatch.delenv("ROBUSTDEQ_DATA", raising=False)
    with first_page(tmp_path) as page:
        assert f'{{"case": {{"model": "{DIGITS}"}}' in page


@pytest.mark.long
def test_an_image_file_is_embedded_whatever_its_name(tmp_path):
    Image.new("L", (8, 8), 128).save(tmp_path / "12:30.png")
    with first_page(tmp_path, DIGITS, "--image", "12:30.png") as page:
        assert f'{{"case": {{"model": "{DIGITS}", "image": "data:image/png;base64,' in page
