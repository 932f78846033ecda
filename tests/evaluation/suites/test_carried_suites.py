"""Attacks along carried gradients in suites."""

import pytest

from robustdeq.attacks.oracles import CarriedEstimate
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.suites.build import build_oracle
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.models import create_model
from robustdeq.threat import Linf


def made(suite, predictor, **options):
    context = Context(Subject(predictor), Linf(0.1), **options)
    return {spec.name: spec for spec in make_suite(suite, context).specs}, context.subject


@pytest.mark.parametrize("defended", [False, True])
def test_autoattack_carried_is_standard_autoattack_along_carried_gradients_with_deployed_values(defended):
    model = create_model("mdeq-nano")
    predictor = EarlyState(EntropyReduction(model) if defended else model, state=8)
    specs, subject = made("autoattack-carried", predictor, aware=True)
    spec = specs["aa-carried"]
    assert spec.is_standard_autoattack
    oracle = build_oracle(spec, subject)
    assert isinstance(oracle, CarriedEstimate)
    assert (oracle.values, oracle.view) == ("deployed", "aware" if defended else "oblivious")
    assert spec.cost() < made("autoattack", predictor)[0]["aa-ready"].cost()


def test_the_audit_has_an_attack_along_carried_gradients_and_the_grid_is_as_it_was():
    predictor = EarlyState(create_model("mdeq-nano"), state=8)
    assert made("audit", predictor)[0]["apgd-carried"].oracle == "carried"
    assert not any(spec.oracle == "carried" for spec in made("grid", predictor)[0].values())


def test_a_model_without_dynamics_has_no_adjoint_to_carry():
    with pytest.raises(ValueError, match="without dynamics run autoattack"):
        made("autoattack-carried", lambda x: x.flatten(1))
