"""What the tests of the defences share."""

import jaxtyping
import pytest

from .models import cell, images, mdeq

VARIANTS = ("paper", "released")


@pytest.fixture(params=["mdeq", "cell"])
def victim(request):
    """A model and images for it."""
    return (mdeq(), images(3, 3, 8, 8)) if request.param == "mdeq" else (cell(), images(3, 1, 4, 4))


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture
def as_installed():
    """Without the tests' type checker, which would refuse a wrong choice before its own error can be seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
