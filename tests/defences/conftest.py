"""Fixtures of the defences' tests."""

import pytest

from .models import cell, images, mdeq

VARIANTS = ("paper", "released")


@pytest.fixture(params=["mdeq", "cell"], scope="module")
def victim(request):
    """A model and images for it."""
    return (mdeq(), images(3, 3, 8, 8)) if request.param == "mdeq" else (cell(), images(3, 1, 4, 4))


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param
