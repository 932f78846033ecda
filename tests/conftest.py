"""What all tests share."""

import jaxtyping
import pytest

from tests.browser import browser as browser


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory):
    """The user's key, by which a checkpoint's maker is known, is one of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def as_installed():
    """Without the tests' type checker, which would refuse a wrong choice before its own error can be seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
