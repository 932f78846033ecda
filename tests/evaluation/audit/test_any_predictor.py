"""Predictors of any kind are audited: without a gradient, random, beside a base of the caller's."""

import numpy as np
import pytest
import torch

from robustdeq.attacks import PGD, Direct
from robustdeq.defences import InputDefence
from robustdeq.evaluation import evaluate
from robustdeq.evaluation.analysis.statistics import wilson
from robustdeq.evaluation.audit.conclusion import conclude
from robustdeq.evaluation.audit.flags import share_flag
from robustdeq.evaluation.audit.memory import replaced
from robustdeq.evaluation.audit.slopes import broken_promises, input_gradients
from robustdeq.evaluation.suites.audit import Budget, audit_suite
from robustdeq.evaluation.suites.opaque import Averaged, Beside, Opaque
from robustdeq.threat import Linf
from tests.evaluation.predictors import images, linear_function, small_deq

EPS = 0.05
MODEL = linear_function()
SHORT = Budget(steps=11, search=3, restarts=1, rounds=1, square={"n_queries": 10})


def audited(predictor, out, **options):
    options = {"threat": Linf(EPS), "batch_size": 20} | options
    return evaluate(predictor, images(20), lambda c: audit_suite(c, SHORT), out, **options)


def named(audit, name):
    return next(flag for flag in audit.flags if flag.name == name)


def in_numpy(x):
    return torch.from_numpy(MODEL(torch.from_numpy(x.numpy())).numpy())


def cut(x):
    with torch.no_grad():
        return MODEL(x)


@pytest.mark.parametrize("predictor", [in_numpy, cut, lambda x: MODEL(x.detach())])
def test_a_predictor_without_autograd_has_a_gradient_of_zero_and_the_same_values(predictor):
    x, y = images(5)
    oracle = Opaque(predictor)
    assert torch.equal(oracle(x.clone().requires_grad_()), MODEL(x))
    assert not input_gradients(oracle, x, y, "ce").any()
    start = x.clone()
    assert torch.equal(PGD(Linf(EPS), steps=3)(oracle, x, y, start=start).images, x)


def test_a_predictor_with_a_gradient_keeps_it():
    x, y = images(5)
    found, own = (input_gradients(kind(MODEL), x, y, "margin") for kind in (Opaque, Direct))
    assert torch.equal(found, own)
    assert found.any()


def test_an_error_of_the_predictor_s_own_is_not_hidden():
    def failing(x):
        raise RuntimeError("no such layer")

    with pytest.raises(RuntimeError, match="no such layer"):
        Opaque(failing)(images(1)[0].clone().requires_grad_())


def test_numpy_code_is_flagged_and_attacked_with_the_gradient_of_its_base(tmp_path):
    verdict = audited(in_numpy, tmp_path / "store", base=MODEL)
    assert "vanishing-gradients" in {flag.name for flag in verdict.audit.raised}
    assert verdict.audit.gain.value == 0
    assert verdict.attacks["bpda-ce"].value < verdict.attacks["pgd-direct"].value


def test_a_base_stands_beside_a_predictor_without_dynamics_and_beside_one_with(tmp_path):
    for name, predictor, base in (("a", MODEL, small_deq()), ("b", small_deq(), MODEL)):
        verdict = audited(predictor, tmp_path / name, base=base)
        assert verdict.audit.base_union is not None
        assert {"bpda-ce", "bpda-dlr", "base-apgd-ce", "base-apgd-dlr"} <= verdict.attacks.keys()
        assert ("base-exact" in verdict.attacks) == (name == "a")


def test_a_base_of_other_classes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="10 classes apart, its static base 4"):
        audited(MODEL, tmp_path / "store", base=lambda x: MODEL(x)[:, :4])


def test_what_is_said_before_the_attacks_names_the_gain_that_can_be_detected(tmp_path):
    said = []
    audited(MODEL, tmp_path / "store", base=MODEL, say=said.append)
    assert len(said) == 1
    assert "20 images can detect a gain of" in said[0]


def test_a_random_predictor_is_judged_by_its_mean_logits(tmp_path):
    noise = torch.Generator().manual_seed(0)

    def noisy(x):
        return MODEL(x) + torch.randn(len(x), 10, generator=noise).to(x)

    verdict = audited(noisy, tmp_path / "store")
    assert any("mean logits over 8 passes" in note for note in verdict.notes)
    assert "randomness" in {flag.name for flag in verdict.audit.raised}
    x, _ = images(20)
    single, mean = (float((p(x) - MODEL(x)).std()) for p in (noisy, Averaged(noisy)))
    assert mean < 0.6 * single
    assert not named(verdict.audit, "randomness").forbids


def test_a_random_defence_along_the_dynamics_cannot_stand(tmp_path):
    class Noise(InputDefence):
        def move(self, now):
            return (now.received + 0.1 * torch.randn_like(now.received)).clamp(0, 1)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        verdict = audited(Noise(small_deq()), tmp_path / "store")  # single passes, not their mean
    flag = named(verdict.audit, "randomness")
    assert flag.state == "raised"
    assert flag.forbids
    clear = share_flag("large-eps", 0.0, 400)
    assert conclude([clear], wilson(100, 200)).verdict == "stands"
    assert conclude([clear, flag], wilson(100, 200)).verdict == "undecided"


def test_the_gradient_of_another_predictor_comes_with_the_values_of_the_first():
    x, y = images(4)
    oracle = Beside(lambda z: -MODEL(z), Opaque(MODEL), values="deployed")
    variable = x.clone().requires_grad_()
    assert torch.equal(oracle(variable), -MODEL(x))
    found, own = input_gradients(oracle, x, y, "ce"), input_gradients(Opaque(MODEL), x, y, "ce")
    assert found.any()
    assert found.shape == own.shape


def test_a_promise_is_broken_by_a_gradient_of_the_other_sign_alone():
    x, y = images(20)
    gradients = input_gradients(Opaque(MODEL), x, y, "margin")
    assert not broken_promises(Opaque(MODEL), x, y, gradients, Linf(EPS)).any()
    assert broken_promises(Opaque(MODEL), x, y, -gradients, Linf(EPS)).all()


def test_replaced_pixels_are_those_that_matter_least_and_move_far():
    x, y = images(6)
    gradients = input_gradients(Opaque(MODEL), x, y, "margin")
    moved = replaced(x, gradients)
    changed = (moved != x).flatten(1)
    assert (changed.sum(1) == 1).all()  # 2% of 64
    assert ((moved - x).abs().flatten(1).amax(1) >= 0.5).all()
    assert torch.equal(MODEL(moved).argmax(1), MODEL(x).argmax(1))
    assert np.allclose(MODEL(moved), MODEL(x), atol=0.05 * float(MODEL(x).abs().max()))
