"""A running explorer."""

import threading
from contextlib import contextmanager

import pytest

from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.server import Explorer, serve
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import deployed

DIGITS = "digits-nano-trades-random"


@pytest.fixture(scope="package")
def explorer(tmp_path_factory):
    """The explorer behind `address`."""
    return Explorer(Catalogue([DIGITS], resolve), deployed, tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="package")
def address(explorer):
    """Where an explorer is served, host and port."""
    with serving(explorer, Case(model=DIGITS, image="test:7", steps=3, defence_steps=2)) as found:
        yield found


@contextmanager
def serving(explorer, start, host="127.0.0.1"):
    """Serves an explorer; gives host and port."""
    server = serve(explorer, start, host, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
