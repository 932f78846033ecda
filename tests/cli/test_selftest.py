"""`robustdeq selftest` passes on this machine, and fails where a number is wrong."""

import numpy as np
import pytest
import torch

from robustdeq.cli import selftest
from robustdeq.cli.main import main

CPU = torch.device("cpu"), torch.float64


def test_the_golden_numbers_are_those_of_the_tests():
    with np.load(selftest.GOLDEN) as shipped, np.load("tests/golden/data/B_basic.npz") as tested:
        assert np.array_equal(shipped["undef_logits"], tested["undef_logits"])
        assert np.array_equal(shipped["x_uint8"], tested["x_uint8"])


def test_another_number_fails_the_check_and_the_command(monkeypatch, capsys):
    loaded = selftest._released

    def changed(device, dtype):
        model, x, expected = loaded(device, dtype)
        return model, x, expected + 1e-6

    monkeypatch.setattr(selftest, "_released", changed)
    with pytest.raises(AssertionError, match="largest difference"):
        selftest.golden_numbers(*CPU)
    monkeypatch.setattr(selftest, "CHECKS", {"golden numbers": selftest.golden_numbers})
    assert main(["selftest", "--device", "cpu"]) == 1
    assert "1 of 1 checks failed" in capsys.readouterr().out


@pytest.mark.long
def test_every_check_passes_here(capsys):
    assert main(["selftest", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == len(selftest.CHECKS) + 2
    assert "all checks passed" in out
