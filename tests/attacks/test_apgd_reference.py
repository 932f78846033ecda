"""Our APGD against pyautoattack's, on a plain convnet: same start, same number of steps."""

import pytest
import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted

from robustdeq.attacks import APGD, Direct
from robustdeq.threat import L2, Linf, cross_entropy, dlr

from .victims import digits

LOSSES = {"ce": cross_entropy, "dlr": dlr}


class ComparesWithStart:
    """The reference's first check of growth compares the first step with a row of zeros; the paper, with the start."""

    def check_oscillation(self, x, j, k, y5, k3=0.75):
        return super().check_oscillation(torch.cat([x[: j + 1], self.loss_at_start[None]]), j, k, y5, k3)


class Published(ComparesWithStart, APGDAttack):
    pass


class PublishedTargeted(ComparesWithStart, APGDAttack_targeted):
    pass


def single_run(model, threat, loss, x, y, start, steps):
    """(still correct, the last adversarial point where there is one and else the best point)."""
    attack = Published(model, n_iter=steps, norm=type(threat).__name__, eps=threat.eps, loss=loss, device="cpu")
    attack.init_hyperparam(x)
    attack.loss_at_start = LOSSES[loss](model(start), y).detach()
    best, correct, _, adversarial = attack.attack_single_run(x, y, x_init=start)
    return correct, torch.where(correct[:, None, None, None], best, adversarial).detach()


@pytest.mark.parametrize("loss", ["ce", "dlr"])
@pytest.mark.parametrize(("steps", "count"), [(100, 30), (33, 60)])
def test_iterates_in_linf_are_bitwise_the_reference_s(loss, steps, count):
    model, x, y = digits()
    x, y, threat = x[:count], y[:count], Linf(0.1)
    start = threat.random_start(x, torch.Generator().manual_seed(1))
    correct, expected = single_run(model, threat, loss, x, y, start, steps)
    result = APGD(threat, loss=loss, n_iter=steps)(Direct(model), x, y, start=start)
    assert torch.equal(result.success, ~correct)
    assert 0.2 < correct.float().mean() < 0.8
    assert torch.equal(result.images, expected)


@pytest.mark.parametrize("loss", ["ce", "dlr"])
def test_iterates_in_l2_are_the_reference_s_up_to_rounding(loss):
    """It normalises in another order, and rounding can decide whether an objective has grown."""
    model, x, y = digits()
    x, y, threat = x[:60], y[:60], L2(0.6)
    start = threat.random_start(x, torch.Generator().manual_seed(1))
    correct, expected = single_run(model, threat, loss, x, y, start, 33)
    result = APGD(threat, loss=loss, n_iter=33)(Direct(model), x, y, start=start)
    assert torch.equal(result.success, ~correct)
    assert 0.2 < correct.float().mean() < 0.8
    near = (result.images - expected).abs().flatten(1).amax(1) < 1e-5
    assert near.float().mean() >= 0.95


def start_of(threat, x):
    """A start that is a function of the image, for an outside attack that shows only some of the images."""
    return threat.project(x + threat.eps * torch.sin(1000 * x + torch.arange(x[0].numel()).reshape(x[0].shape)), x)


@pytest.mark.parametrize(
    ("loss", "steps", "outside"),
    [("ce", 30, Published), ("dlr", 30, Published), ("dlr_targeted", 8, PublishedTargeted)],
)
def test_robust_accuracy_on_200_images_is_the_reference_s(loss, steps, outside):
    """With its own loop over targets and survivors."""
    model, x, y = digits()
    threat = Linf(0.1)

    class Started(outside):
        def attack_single_run(self, x, y, x_init=None):
            start = start_of(threat, x)
            formula = self.dlr_loss_targeted if loss == "dlr_targeted" else LOSSES[loss]
            self.loss_at_start = formula(model(start), y).detach()
            return super().attack_single_run(x, y, x_init=start)

    kwargs = {} if loss == "dlr_targeted" else {"loss": loss}
    with torch.random.fork_rng():
        attack = Started(model, n_iter=steps, norm="Linf", eps=threat.eps, device="cpu", **kwargs)
        expected = model(attack.perturb(x, y)).argmax(1) != y
    result = APGD(threat, loss=loss, n_iter=steps)(Direct(model), x, y, start=start_of(threat, x), every_image=False)
    assert 50 < result.success.sum() < 150
    assert torch.equal(result.success, expected)
