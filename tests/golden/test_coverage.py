"""Every stored array is compared by some test, or listed here with the reason why not."""

import importlib
from pathlib import Path

import pytest

from .cases import DATA, FILES, GIVEN, NAMES, arrays, matches
from .comparison import COMPARISONS

NOT_NUMBERS = {
    # where the images come from; checking it needs CIFAR-10
    "basic": ("cifar10_test_index",),
}

EVERY_FILE = [(case, file) for case in NAMES for file in FILES]


@pytest.fixture(scope="module", autouse=True)
def all_comparisons():
    """What the test modules declare, whichever of them this process happens to run."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return COMPARISONS


def compared(case, file, name):
    return any(comparison.covers(case, file, name) for comparison in COMPARISONS)


def excused(file, name):
    return matches(name, NOT_NUMBERS.get(file, ()))


def test_the_golden_files_are_the_known_ones():
    assert {path.stem for path in DATA.glob("*.npz")} == {f"{case}_{file}" for case, file in EVERY_FILE}


@pytest.mark.parametrize(("case", "file"), EVERY_FILE)
def test_every_array_is_compared_or_is_an_input_or_is_excused(case, file):
    left_out = [
        name
        for name in arrays(case, file)
        if not (compared(case, file, name) or matches(name, GIVEN.get(file, ())) or excused(file, name))
    ]
    assert not left_out


@pytest.mark.parametrize(("case", "file"), EVERY_FILE)
def test_no_array_is_both_compared_and_excused(case, file):
    assert not [name for name in arrays(case, file) if compared(case, file, name) and excused(file, name)]


@pytest.mark.parametrize("table", [GIVEN, NOT_NUMBERS], ids=["given", "not numbers"])
def test_no_pattern_of_the_tables_is_stale(table):
    stale = [
        (file, pattern)
        for file, patterns in table.items()
        for pattern in patterns
        if not any(matches(name, [pattern]) for case in NAMES for name in arrays(case, file))
    ]
    assert not stale


def test_no_pattern_of_a_comparison_is_stale():
    stale = [
        (comparison.test, case, pattern)
        for comparison in COMPARISONS
        for case in comparison.cases
        for pattern in comparison.patterns
        if not any(matches(name, [pattern]) for name in arrays(case, comparison.file))
    ]
    assert not stale
