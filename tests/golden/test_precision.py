"""Single precision."""

import pytest
import torch

from .cases import CASES


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_float32_logits_agree_with_float64_to_float32_accuracy(case):
    exact = case.model()(case.x)
    logits = case.model().float()(case.x.float())
    assert logits.dtype == torch.float32
    assert (logits - exact).abs().max() <= 1e-5 * exact.abs().max()
