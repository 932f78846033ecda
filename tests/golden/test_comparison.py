"""The comparison itself notices wrong and missing numbers."""

import numpy as np
import pytest
import torch

from .cases import CASES, Digest, withheld
from .comparison import COMPARISONS, assert_meets, compares

GOLDEN = {"a": np.array([1.0, -100.0]), "steps": np.array([3, 8])}
OURS = {"a": torch.tensor([1.0, -100.0], dtype=torch.float64), "steps": torch.tensor([3, 8])}


def test_equal_numbers_pass():
    assert_meets(OURS, GOLDEN, tol=0.0)


def test_tolerance_is_relative_to_the_largest_entry():
    assert_meets(OURS | {"a": OURS["a"] + 0.99e-6}, GOLDEN, tol=1e-8)
    with pytest.raises(AssertionError, match="a: differs"):
        assert_meets(OURS | {"a": OURS["a"] + 1.01e-6}, GOLDEN, tol=1e-8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": torch.tensor([3, 7])},
        {"a": torch.tensor([1.0, torch.nan], dtype=torch.float64)},
        {"a": torch.tensor([[1.0, -100.0]], dtype=torch.float64)},
        {"a": torch.tensor([1, -100])},
    ],
    ids=["integer", "nan", "shape", "dtype"],
)
def test_wrong_numbers_fail(wrong):
    with pytest.raises(AssertionError, match=next(iter(wrong))):
        assert_meets(OURS | wrong, GOLDEN, tol=1.0)


@pytest.mark.parametrize("ours", [{"a": OURS["a"]}, OURS | {"b": OURS["a"]}], ids=["missing", "unknown"])
def test_returned_names_must_be_the_stored_ones(ours):
    with pytest.raises(AssertionError, match="not both returned and stored"):
        assert_meets(ours, GOLDEN, tol=1.0)


def test_digest_of_a_short_vector_is_the_written_formula():
    v = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0], dtype=torch.float64)
    digest = Digest(v, [2, 3]).arrays(samples=2)
    assert digest["norm"] == pytest.approx([5**0.5, 83**0.5])
    second = (3 * np.cos(1.4 * 1 + 1) + 5 * np.cos(1.4 * 2 + 1) + 7 * np.cos(1.4 * 3 + 1)) / 3**0.5
    assert digest["proj"].shape == (2, 4)
    assert digest["proj"][1, 1] == pytest.approx(second)
    assert digest["sub"].tolist() == [[2.0, 2.0], [3.0, 7.0]]  # indices 3, 11 mod 2 and 3, 11 mod 3


def test_results_cannot_be_read_as_inputs():
    with pytest.raises(KeyError, match="is a result"):
        CASES["A"].given("basic", "undef_logits")


def test_a_test_cannot_read_what_it_compares():
    def itself(case):
        return {"x_adv": case.x_adv}

    test = compares("attack", "x_adv")(itself)
    COMPARISONS.pop()
    with pytest.raises(KeyError, match="is what this test compares"):
        test(case=CASES["B"])
    with withheld("attack", ["x_start"]):
        assert CASES["B"].x_adv.shape == (4, 3, 32, 32)
