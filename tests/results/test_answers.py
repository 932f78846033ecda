"""Differences of results/answers.py: which trainings they are over, and on which images."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "results" / "answers.py"


@pytest.fixture(scope="module")
def difference():
    spec = importlib.util.spec_from_file_location("answers", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.difference


def outcomes(share, images=1000):
    return np.arange(images) % 100 < share


def test_nothing_is_said_without_a_training_of_each(difference):
    assert difference([], [outcomes(30)]) == difference([outcomes(30)], []) == ""


def test_one_training_of_a_method_is_compared_with_the_first_of_the_other(difference):
    found = difference([outcomes(30)], [outcomes(40), outcomes(90), outcomes(90)])
    assert found.startswith("+10.0 [")
    assert found.endswith("(1 and 1 trainings, 1,000 images)")


def test_several_trainings_are_all_compared_on_the_images_that_all_have(difference):
    found = difference([outcomes(30), outcomes(32, images=500)], [outcomes(40), outcomes(42), outcomes(44)])
    assert found.startswith("+11.0 [")
    assert found.endswith("(2 and 3 trainings, 500 images)")
