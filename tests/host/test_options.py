"""Options of a user's own class, as text from a command line or values from YAML."""

import pytest

from robustdeq.host.options import checked_options


def blur(predictor, width: float = 1.0):
    """A defence of somebody's."""


def test_a_number_may_be_a_fraction():
    assert checked_options("--defence blur", blur, {"width": "8/255"}, ("predictor",)) == {"width": 8 / 255}


def test_a_fraction_of_zero_is_no_number():
    with pytest.raises(ValueError, match="--defence blur: width: expected a number, got 8/0"):
        checked_options("--defence blur", blur, {"width": "8/0"}, ("predictor",))
