"""The explorer's server answers its own page, and nobody and nothing else."""

import http.client
import json
import socket
import time

import pytest

from robustdeq.app.case import Case
from robustdeq.app.server import LIMIT
from tests.app.conftest import serving

DIGITS = "digits-nano-trades-random"
JSON = {"Content-Type": "application/json"}
FAST = {"model": DIGITS, "image": "test:7", "steps": 2, "defence_steps": 1}


def ask(address, method, path, body=None, headers=None):
    """Status, headers and text of an answer."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def test_the_page_asks_for_nothing_but_its_own_server(address):
    status, headers, text = ask(address, "GET", "/")
    assert status == 200
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/etc/passwd", "/../pyproject.toml", "/case.json", "/%2e%2e/"])
def test_no_file_is_served(address, path):
    assert ask(address, "GET", path)[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:7860"},
        {"Host": "192.168.0.1:7860"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_other_names_and_other_sites_are_refused(address, headers):
    assert ask(address, "GET", "/", headers=headers)[0] == 403
    assert ask(address, "POST", "/view", FAST, {**JSON, **headers})[0] == 403


def test_a_server_for_everybody_answers_at_the_address_that_is_printed(explorer):
    with serving(explorer, Case(model=DIGITS), "0.0.0.0") as address:
        port = address.rpartition(":")[2]
        assert ask(f"localhost:{port}", "GET", "/")[0] == 200
        assert ask(address, "GET", "/", headers={"Host": f"192.168.0.1:{port}"})[0] == 200
        assert ask(address, "GET", "/", headers={"Host": f"evil.example:{port}"})[0] == 403


def test_what_a_form_of_another_site_could_send_is_refused(address):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask(address, "POST", "/keep", FAST, {"Content-Type": kind})[0] == 415


def test_a_view_comes_after_its_progress(address):
    status, _, text = ask(address, "POST", "/view", FAST, JSON)
    messages = [json.loads(line) for line in text.splitlines()]
    assert status == 200
    assert {"progress": ["PGD on the image", 1, 3]} in messages
    assert "query" in messages[-1]
    assert "<svg" in messages[-1]["html"]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ({"model": "/etc"}, "no model /etc was chosen when the explorer started"),
        ({"model": DIGITS, "image": "/etc/passwd"}, "no image '/etc/passwd'"),
        ({"model": DIGITS, "image": "file:///etc/passwd"}, "no image 'file:///etc/passwd'"),
        ({**FAST, "attack": "os:system"}, "os:system was not named when the explorer started: give --attack os:system"),
        ({**FAST, "defence": "os:system"}, "os:system was not named when the explorer started: give --defence os:"),
        ({"model": DIGITS, "nonsense": 1}, "a case has no 'nonsense'"),
        ({"model": DIGITS, "oracle": "unrolled", "oracle_state": 12, "image": "test:0"}, "state counts from 1 to"),
    ],
)
def test_a_wrong_case_is_answered_by_a_sentence(address, case, sentence):
    last = json.loads(ask(address, "POST", "/view", case, JSON)[2].splitlines()[-1])
    assert last["error"].startswith(sentence)


@pytest.mark.parametrize("body", ["", "[]", "{", "null"])
def test_a_body_that_is_no_case_is_answered_by_a_sentence(address, body):
    status, _, text = ask(address, "POST", "/view", body, JSON)
    assert status == 200
    assert json.loads(text)["error"]


def test_a_wrong_upload_gets_a_sentence_and_a_large_one_is_not_read(address):
    headers = {"Content-Type": "application/octet-stream", "X-Model": DIGITS, "X-Name": "cat%20%3Cb%3E.png"}
    _, _, text = ask(address, "POST", "/upload", "no image", headers)
    assert json.loads(text)["error"] == "cat <b>.png is not an image, or of a kind that cannot be read"
    _, _, text = ask(address, "POST", "/upload", None, {**headers, "Content-Length": str(LIMIT + 1)})
    assert json.loads(text)["error"].startswith("at most 20 MB are taken")


def test_who_hangs_up_stops_the_work(address, explorer):
    body = json.dumps({**FAST, "attack": "apgd", "steps": 1000, "oracle": "exact"}).encode()
    host, port = address.split(":")
    head = f"POST /view HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        heard = b""
        while b"APGD on the image" not in heard:
            heard += connection.recv(4096)
        assert explorer._busy.locked()
    until = time.monotonic() + 60
    while explorer._busy.locked():
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not any("apgd" in query for query in explorer._views)


def test_keep_writes_a_folder_that_the_same_view_writes_again(address, explorer):
    said = [json.loads(ask(address, "POST", "/keep", FAST, JSON)[2])["kept"] for _ in range(2)]
    assert said[0] == said[1]
    (folder,) = explorer.kept.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["case.json", "case.py", "case.svg", "index.html"]
