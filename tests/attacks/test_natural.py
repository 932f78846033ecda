"""Attacks on a model or predictor instead of an oracle."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks.oracles import READY, natural_oracle

from .victims import Linear, images


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return rd.create_model("mdeq-nano", num_classes=10).eval()


CASES = {
    "model": (lambda m: m, lambda p: rd.oracles.Estimate(p, gradient=READY)),
    "early": (lambda m: rd.EarlyState(m, state=8), lambda p: rd.oracles.Estimate(p, gradient=READY)),
    "defended": (
        lambda m: rd.EntropyReduction(m, every=4, steps=1),
        lambda p: rd.oracles.Estimate(p, gradient=READY, view="bpda"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_attack_on_a_predictor_is_the_attack_on_its_natural_oracle(case, model):
    wrap, oracle = CASES[case]
    predictor, x, y = wrap(model), images(2, (1, 8, 8), dtype=torch.float32), torch.tensor([3, 1])
    attack = rd.PGD(rd.Linf(0.1), steps=2)
    found, expected = attack(predictor, x, y), attack(oracle(predictor), x, y)
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.success, predictor(found.images).argmax(1) != y)
    assert found.oracle == expected.oracle
    assert found.oracle.startswith("Estimate(gradient=Phantom(steps=9, damping=0.5")
    assert ("view='bpda'" in found.oracle) == (case == "defended")


def test_a_model_without_dynamics_is_attacked_by_its_own_gradient():
    net, x, y = Linear(), images(3, (1, 3, 3)), torch.tensor([0, 1, 2])
    attack = rd.APGD(rd.L2(0.3), n_iter=3)
    for predictor in (net, lambda pixels: net(pixels)):
        found = attack(predictor, x, y)
        assert found.oracle == "Direct()"
        assert_close(found.images, attack(rd.oracles.Direct(net), x, y).images)


def test_an_oracle_is_named_by_its_settings_that_are_not_defaults(model):
    assert rd.UnrolledState(model).name == "UnrolledState()"
    assert rd.UnrolledState(model, state=2, values="deployed").name == "UnrolledState(values='deployed', state=2)"
    assert natural_oracle(oracle := rd.UnrolledState(model)) is oracle


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("wrong", "said"), [("cifar10", "got a str"), (None, "a NoneType"), (Linear, "got Linear")])
def test_what_is_neither_oracle_nor_predictor_is_refused(wrong, said):
    with pytest.raises(TypeError, match=f"expected an oracle, a model or another predictor.*{said}"):
        rd.PGD(rd.Linf(0.1))(wrong, images(1), torch.tensor([0]))
