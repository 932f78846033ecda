"""Losses, per image, against torch's formulas."""

import torch
import torch.nn.functional as F
from torch.testing import assert_close

from robustdeq.threat import cross_entropy, kl


def logits(seed):
    return 3 * torch.randn(32, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_cross_entropy_is_minus_the_log_probability_of_the_label():
    x, y = logits(0), torch.arange(32) % 10
    assert_close(cross_entropy(x, y), -x.softmax(1).log()[torch.arange(32), y])


def test_kl_is_the_divergence_from_the_reference():
    x, reference = logits(0), logits(1)
    expected = F.kl_div(x.log_softmax(1), reference.softmax(1), reduction="none").sum(1)
    assert_close(kl(x, reference), expected)
    assert not torch.allclose(kl(reference, x), expected)


def test_kl_is_positive_and_zero_at_equality():
    x, reference = logits(0), logits(1)
    assert (kl(x, reference) > 0).all()
    assert_close(kl(x, x), torch.zeros(32, dtype=torch.float64))
    assert_close(kl(x + 5, x), torch.zeros(32, dtype=torch.float64))


def test_kl_differentiates_both_arguments():
    x, reference = logits(0).requires_grad_(), logits(1).requires_grad_()
    kl(x, reference).sum().backward()
    assert_close(x.grad, x.detach().softmax(1) - reference.detach().softmax(1))
    assert reference.grad.abs().sum() > 0


def test_kl_of_a_certain_prediction_is_finite():
    sure = torch.tensor([[1e4, 0.0, 0.0]])
    assert torch.equal(kl(sure, sure), torch.zeros(1))
    assert kl(torch.zeros(1, 3), sure).isfinite().all()


def test_half_precision_logits_are_compared_in_float32():
    logits = torch.randn(4, 5).bfloat16()
    assert kl(logits, logits).dtype == torch.float32
    assert cross_entropy(logits, torch.zeros(4, dtype=torch.int64)).dtype == torch.float32
