"""What all tests share."""

import jaxtyping
import pytest

from tests.browser import browser as browser


@pytest.fixture
def as_installed():
    """Without the tests' type checker, which would refuse a wrong choice before its own error can be seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
