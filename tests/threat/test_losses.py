"""Losses, per image, against torch's formulas."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from robustdeq.threat import confident, cross_entropy, dlr, dlr_targeted, kl, margin


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
    y = torch.zeros(4, dtype=torch.int64)
    for loss in (cross_entropy, margin, dlr):
        assert loss(logits, y).dtype == torch.float32
    assert dlr_targeted(logits, y, y + 1).dtype == torch.float32


Z = torch.tensor([[1.0, 5.0, 3.0, 2.5], [1.0, 5.0, 3.0, 2.5]])
"""Sorted: 5, 3, 2.5, 1."""
Y = torch.tensor([1, 2])
"""Classified rightly, wrongly."""


def test_margin_is_the_best_wrong_logit_minus_that_of_the_label():
    assert_close(margin(Z, Y), torch.tensor([-2.0, 2.0]))


def test_confident_is_the_best_wrong_class_as_it_stands():
    assert torch.equal(confident(Z, Y), torch.tensor([3.0, 5.0]))


def test_dlr_is_the_margin_over_the_difference_of_first_and_third():
    assert_close(dlr(Z, Y), torch.tensor([-2.0, 2.0]) / 2.5)


def test_targeted_dlr_compares_label_and_target():
    target = torch.tensor([3, 0])
    assert_close(dlr_targeted(Z, Y, target), torch.tensor([2.5 - 5.0, 1.0 - 3.0]) / (5 - (2.5 + 1) / 2))


@pytest.mark.parametrize("loss", [dlr, lambda z, y: dlr_targeted(z, y, (y + 1) % 10)])
def test_dlr_does_not_change_with_shift_and_scale(loss):
    z, y = logits(0), torch.arange(32) % 10
    assert_close(loss(7 * z + 3, y), loss(z, y))
    assert not torch.allclose(margin(7 * z + 3, y), margin(z, y))


def test_the_sign_of_margin_and_dlr_says_whether_the_prediction_is_wrong():
    z, y = logits(0), logits(1).argmax(1)
    wrong = z.argmax(1) != y
    assert torch.equal(margin(z, y) > 0, wrong)
    assert torch.equal(dlr(z, y) > 0, wrong)
    assert wrong.any()
    assert not wrong.all()


def test_dlr_of_equal_logits_is_finite_with_finite_gradients():
    z = torch.zeros(2, 5, requires_grad=True)
    loss = dlr(z, Y) + dlr_targeted(z, Y, Y + 1)
    assert torch.equal(loss, torch.zeros(2))
    assert torch.autograd.grad(loss.sum(), z)[0].isfinite().all()


def test_nan_stays_in_its_row():
    z = Z.clone()
    z[0, 3] = torch.nan
    for loss in (margin, dlr, cross_entropy):
        assert loss(z, Y).isnan().tolist() == [True, False]


@pytest.mark.parametrize(("loss", "needed"), [(margin, 2), (confident, 2), (dlr, 3), (dlr_targeted, 4)])
def test_a_loss_that_needs_more_classes_says_so(loss, needed):
    y = torch.zeros(2, dtype=torch.int64)
    targets = [y] if loss is dlr_targeted else []
    assert loss(torch.randn(2, needed), y, *targets).shape == (2,)
    with pytest.raises(ValueError, match=f"'{loss.__name__}' needs at least {needed} classes, the predictor has"):
        loss(torch.randn(2, needed - 1), y, *targets)
