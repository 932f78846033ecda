"""Downloads, from a server on this machine."""

import hashlib
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from robustdeq.data import DataError, DownloadError, download_cifar10, load_cifar10
from tests.data.official import ARCHIVE, archive_bytes, fake_files

CONTENT = archive_bytes(fake_files())
MD5 = hashlib.md5(CONTENT).hexdigest()
PART = ARCHIVE + ".part"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def serve():
    """serve(handler class) -> address of a server that lives as long as the test."""
    servers = []

    def start(handler):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/{ARCHIVE}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def plain_server(serve, tmp_path):
    """Python's own http.server, which knows no ranges."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / ARCHIVE).write_bytes(CONTENT)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    return serve(partial(Quiet, directory=str(folder)))


def ranged(*, send=None, offset=0):
    """A handler class that knows ranges, records them, and breaks off after `send` bytes of an answer."""

    class Handler(BaseHTTPRequestHandler):
        ranges: ClassVar = []

        def do_GET(self):
            asked = self.headers.get("Range")
            self.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            if start >= len(CONTENT):
                self.send_error(416)
                return
            body = CONTENT[start:]
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start + offset}-{len(CONTENT) - 1}/{len(CONTENT)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:send])

        def log_message(self, *_):
            pass

    return Handler


def get(root, url, **options):
    return download_cifar10(root, **{"url": url, "md5": MD5, "progress": lambda *_: None, **options})


def test_a_download_ends_with_an_archive_that_can_be_read(tmp_path, plain_server):
    root = tmp_path / "new" / "root"
    path = get(root, plain_server)
    assert path == root / ARCHIVE
    assert path.read_bytes() == CONTENT
    assert [p.name for p in root.iterdir()] == [ARCHIVE]
    assert [len(p) for p in load_cifar10(root, held_out=2)] == [18, 2, 4]


def test_a_wrong_checksum_leaves_nothing_behind(tmp_path, plain_server):
    root = tmp_path / "root"
    with pytest.raises(DownloadError, match=f"its MD5 is {MD5}, not {'0' * 32}"):
        get(root, plain_server, md5="0" * 32)
    assert list(root.iterdir()) == []


def test_a_file_that_is_there_already_is_not_fetched_again(tmp_path, serve):
    handler = ranged()
    (tmp_path / ARCHIVE).write_bytes(CONTENT)
    get(tmp_path, serve(handler))
    assert handler.ranges == []


def test_a_damaged_file_is_replaced(tmp_path, plain_server):
    (tmp_path / ARCHIVE).write_bytes(CONTENT[:100])
    get(tmp_path, plain_server)
    assert (tmp_path / ARCHIVE).read_bytes() == CONTENT


def test_a_broken_connection_keeps_what_arrived_and_the_next_call_fetches_the_rest(tmp_path, serve):
    with pytest.raises(DownloadError, match=rf"ended after 700 of {len(CONTENT):,} bytes.*Run it again to resume"):
        get(tmp_path, serve(ranged(send=700)))
    assert [p.name for p in tmp_path.iterdir()] == [PART]
    assert (tmp_path / PART).read_bytes() == CONTENT[:700]
    handler = ranged()
    get(tmp_path, serve(handler))
    assert handler.ranges == ["bytes=700-"]
    assert (tmp_path / ARCHIVE).read_bytes() == CONTENT
    assert not (tmp_path / PART).exists()


def test_a_server_without_ranges_starts_from_the_beginning(tmp_path, plain_server):
    (tmp_path / PART).write_bytes(b"x" * 300)
    get(tmp_path, plain_server)
    assert (tmp_path / ARCHIVE).read_bytes() == CONTENT


def test_a_part_that_is_whole_is_put_in_place(tmp_path, serve):
    (tmp_path / PART).write_bytes(CONTENT)
    get(tmp_path, serve(ranged()))
    assert (tmp_path / ARCHIVE).read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away_and_the_next_call_succeeds(tmp_path, serve):
    (tmp_path / PART).write_bytes(b"x" * 300)
    url = serve(ranged())
    with pytest.raises(DownloadError, match="not the expected file"):
        get(tmp_path, url)
    get(tmp_path, url)
    assert (tmp_path / ARCHIVE).read_bytes() == CONTENT


def test_an_answer_with_other_bytes_than_asked_for_is_not_appended(tmp_path, serve):
    (tmp_path / PART).write_bytes(CONTENT[:300])
    with pytest.raises(DownloadError, match="not the bytes from 300"):
        get(tmp_path, serve(ranged(offset=1)))
    assert (tmp_path / PART).read_bytes() == CONTENT[:300]


def test_no_network_is_an_error_that_says_what_else_to_do(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(DataError, match=r"could not download .*refused.*put it at .*cifar-10-python\.tar\.gz"):
        get(tmp_path, f"http://127.0.0.1:{port}/{ARCHIVE}")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_does_not_exist_is_an_error(tmp_path, plain_server):
    with pytest.raises(DownloadError, match=r"could not download .*missing: .*File not found"):
        get(tmp_path, plain_server.replace(ARCHIVE, "missing"))


def test_progress_ends_with_everything_received(tmp_path, plain_server):
    calls = []
    get(tmp_path, plain_server, progress=lambda *call: calls.append(call))
    assert calls[-1] == (len(CONTENT), len(CONTENT))


def test_progress_counts_what_was_there_before(tmp_path, serve):
    (tmp_path / PART).write_bytes(CONTENT[:300])
    calls = []
    get(tmp_path, serve(ranged()), progress=lambda *call: calls.append(call))
    assert calls[-1] == (len(CONTENT), len(CONTENT))


def test_progress_is_a_bar_on_stderr_by_default(tmp_path, plain_server, capsys):
    get(tmp_path, plain_server, progress=None)
    out, err = capsys.readouterr()
    assert out == ""
    assert ARCHIVE in err
    assert "100" in err or "kB" in err
