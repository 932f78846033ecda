"""A running explorer."""

import threading

import pytest

from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.server import Explorer, serve
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import deploy

DIGITS = "digits-nano-trades-random"


@pytest.fixture(scope="package")
def explorer(tmp_path_factory):
    """The explorer behind `address`."""
    return Explorer(Catalogue([DIGITS], resolve), deploy, tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="package")
def address(explorer):
    """Where an explorer is served, host and port."""
    start = Case(model=DIGITS, image="test:7", steps=3, defence_steps=2)
    server = serve(explorer, start, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
