"""Every row of the table in docs/method.md (section 4) is an option of its own."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

from .models import cell, images, mdeq

OTHER = {
    "paper": {
        "direction": "gradient",
        "resolve": False,
        "history": "restarted",
        "final_input": "received",
    },
    "released": {
        "direction": "gradient",
        "resolve": True,
        "handed_on": "iterate",
        "final_input": "purified",
    },
}


@pytest.mark.parametrize(("variant", "name"), [(v, name) for v, others in OTHER.items() for name in others])
def test_an_option_that_differs_from_the_variant_changes_the_prediction(variant, name):
    model, x = mdeq(), images(6, 3, 8, 8)
    settings = {"every": 4, "steps": 1, "step_size": 0.05, "radius": 0.2}
    own = rd.EntropyReduction(model, variant=variant, **settings)
    other = rd.EntropyReduction(model, variant=variant, **settings, **{name: OTHER[variant][name]})
    assert dataclasses.asdict(other.switches) == dataclasses.asdict(own.switches) | {name: OTHER[variant][name]}
    assert (own(x) - other(x)).abs().max() > 1e-9


def test_variants_are_sets_of_switches(variant):
    model, x = cell(), images(2, 1, 4, 4)
    other = {"paper": "released", "released": "paper"}[variant]
    switches = dataclasses.asdict(rd.EntropyReduction(model, variant=variant).switches)
    spelt_out = rd.EntropyReduction(model, variant=other, steps=2, **switches)
    assert torch.equal(spelt_out(x), rd.EntropyReduction(model, variant=variant, steps=2)(x))


def test_restarts_that_solve_again_rebuild_their_history_even_in_segments_of_one_step():
    model, x = cell(), images(3, 1, 4, 4)
    settings = {"variant": "released", "resolve": True, "every": 1, "steps": 0}
    states = rd.EntropyReduction(model, **settings).trajectory(x).states
    z, last = torch.zeros(3, 12, dtype=x.dtype), None
    f, _ = model.begin(x)
    expected = []
    for _ in range(8):  # B = -I and the factor of the last step only
        g = f(z) - z
        step = g
        if last is not None:
            dz, dg = last[0], g - last[1]
            u, v = (dz + dg) / (-dz * dg).sum(1, keepdim=True), -dz
            step = g - u * (v * g).sum(1, keepdim=True)
        last = step, g
        z = z + step
        expected.append(z)
    assert_close(states, torch.stack(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "article"}, "variant must be one of paper, released"),
        ({"direction": "signum"}, "direction must be one of"),
        ({"resolve": "yes"}, "resolve must be one of"),
        ({"history": "forgotten"}, "history must be one of"),
        ({"handed_on": "best"}, "handed_on must be one of"),
        ({"final_input": "clean"}, "final_input must be one of"),
        ({"handed_on": "lowest"}, "handed_on='lowest' needs history='restarted'"),
        ({"variant": "released", "history": "kept"}, "set handed_on='iterate' too"),
        ({"every": 0}, "every must be >= 1"),
        ({"steps": -1}, "steps, step_size and radius must be >= 0"),
        ({"step_size": -0.1}, "step_size and radius must be >= 0"),
        ({"radius": float("nan")}, "radius must be a number or a fraction such as 8/255, got nan"),
    ],
)
@pytest.mark.usefixtures("as_installed")
def test_wrong_values_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rd.EntropyReduction(cell(), **options)


def test_a_misspelt_option_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'directon'"):
        rd.EntropyReduction(cell(), directon="sign")


def test_a_defended_predictor_is_not_defended_twice():
    with pytest.raises(ValueError, match="defends its input already"):
        rd.EntropyReduction(rd.EarlyState(rd.EntropyReduction(cell()), state=2))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("defence", [rd.EntropyReduction, rd.EarlyState])
def test_a_model_without_dynamics_cannot_be_defended(defence):
    with pytest.raises(TypeError, match=f"{defence.__name__} works along the dynamics of a DEQ.*; Linear has none"):
        defence(cell().head)


def test_the_representation_tells_the_settings():
    text = repr(rd.EntropyReduction(cell(), every=4, variant="released"))
    assert "every=4" in text
    assert "variant='released'" in text
    assert "state=3" in repr(rd.EarlyState(cell(), state=3))


@pytest.mark.parametrize("every", [2, 8])
@pytest.mark.parametrize("switches", [{"resolve": False}, {"variant": "released", "final_input": "purified"}], ids=str)
def test_the_final_readout_sees_what_the_last_intervention_made_of_the_image(switches, every):
    """Also where nothing else does."""
    model, x = cell(), images(3, 1, 4, 4)
    defended = rd.EntropyReduction(model, every=every, steps=2, step_size=0.1, radius=0.2, **switches)
    last = defended.trajectory(x).inputs[-1]
    assert torch.equal(defended.walk(x).x_read, last)
    z = model.read(defended.walk(x).solution).z
    f, _ = model.begin(last)
    assert_close(defended(x), model.head(rd.Phantom(5, 0.5).advance(f, z)), rtol=0, atol=1e-12)
    assert (defended(x) - model(x)).abs().max() > 1e-3


@pytest.mark.parametrize("switches", [{"resolve": False}, {"variant": "released"}], ids=str)
def test_an_early_state_neither_pays_for_an_intervention_after_it_nor_is_differentiated_there(switches):
    model, x = cell(), images(3, 1, 4, 4)
    early = rd.EarlyState(rd.EntropyReduction(model, every=2, steps=2, step_size=0.1, radius=0.2, **switches), state=8)
    assert len(early.walk(x, steps=early.early_state).purification.inputs) == 3
    slopes = []
    for logits_of in (early, rd.oracles.Estimate(early, state=8, view="bpda", values="deployed")):
        point = x.clone().requires_grad_()
        slopes += torch.autograd.grad(logits_of(point)[:, 0].sum(), point)
    assert_close(*slopes, rtol=0, atol=1e-12)
