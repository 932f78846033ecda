"""Gradient estimators at states, compared with the same formulas written out by hand."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks import Direct
from robustdeq.attacks.oracles import Estimate, Exact, UnrolledState, WatchedStates
from robustdeq.attacks.task import deployed_values

from ..defences.models import cell, images, mdeq

SETTINGS = {"every": 2, "steps": 2, "direction": "sign"}


def slope(logits_of, x, k=1):
    """d logits[:, k] / dx, each image's own."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(logits_of(x)[:, k].sum(), x)[0]


def unrolled(model, z, x, steps, damping, *, first=False):
    """The head after `steps` damped applications of f(.; x) from z; with `first`, an undamped one before."""
    u = model.encoder(x)
    y = model.dynamics(z, u) if first else z
    for _ in range(steps):
        y = (1 - damping) * y + damping * model.dynamics(y, u)
    return model.head(y)


@pytest.fixture
def x():
    return images(2, 1, 4, 4)


@pytest.fixture
def model():
    return cell()


def same(oracle, expected, x):
    """Values and gradients."""
    assert_close(oracle.surrogate(x), expected(x), rtol=0, atol=1e-11)
    assert_close(slope(oracle, x), slope(expected, x), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("state", "steps", "damping"), [(1, 9, 0.5), (3, 5, 0.5), (8, 1, 1.0)])
def test_the_intermediate_state_attack_in_the_papers_form(model, x, state, steps, damping):
    z = model.trajectory(x).states[state - 1]
    oracle = UnrolledState(model, state=state, steps=steps, damping=damping)
    same(oracle, lambda x: unrolled(model, z, x, steps, damping), x)


@pytest.mark.parametrize(("state", "steps", "damping"), [(1, 9, 0.5), (3, 0, 0.5), (8, 1, 1.0)])
def test_the_intermediate_state_attack_in_the_released_form(model, x, state, steps, damping):
    z = model.trajectory(x).states[state - 1]
    oracle = UnrolledState(model, state=state, steps=steps, damping=damping, form="released")
    same(oracle, lambda x: unrolled(model, z, x, steps, damping, first=True), x)


POLICIES = [rd.Phantom(3, 0.7), rd.OneStep(), rd.Neumann(), rd.Implicit(), rd.SharedInverse(), rd.Unrolled(2, 0.5)]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("state", [1, 4, None])
def test_an_estimate_is_the_policy_at_the_state(model, x, policy, state):
    oracle = Estimate(model, gradient=policy, state=state)

    def expected(x):
        if state is None:
            return model.run(x, gradient=policy).logits
        return model.run(x, gradient=policy, max_steps=state, readout="last").logits

    same(oracle, expected, x)


def test_an_estimate_without_a_policy_uses_the_models_own(model, x):
    model.gradient = rd.Neumann(2, 0.9)
    same(Estimate(model), model, x)


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("state", [2, 3, 8])
def test_oblivious_aware_and_bpda_differ_in_the_state_and_in_the_image(model, x, variant, state):
    defended = rd.EntropyReduction(model, variant=variant, **SETTINGS)
    policy = rd.Phantom(2, 0.5)
    undefended_z = model.trajectory(x).states[state - 1]
    trajectory = defended.trajectory(x)
    defended_z = trajectory.states[state - 1]
    interventions = state // 2 if variant == "paper" else (state - 1) // 2
    moved = (trajectory.inputs[interventions - 1] if interventions else x) - x
    expected = {
        "oblivious": lambda x: unrolled(model, undefended_z, x, 2, 0.5, first=True),
        "aware": lambda x: unrolled(model, defended_z, x, 2, 0.5, first=True),
        "bpda": lambda x: unrolled(model, defended_z, x + moved, 2, 0.5, first=True),
    }
    for view, reference in expected.items():
        same(Estimate(defended, gradient=policy, state=state, view=view), reference, x)
    if state > 2:
        slopes = [slope(reference, x) for reference in expected.values()]
        for a, b in ((0, 1), (1, 2), (0, 2)):
            assert (slopes[a] - slopes[b]).abs().max() > 1e-4


@pytest.mark.parametrize("aware", [False, True])
def test_unrolled_states_of_a_defended_predictor_are_oblivious_unless_aware(model, x, aware):
    defended = rd.EntropyReduction(model, **SETTINGS)
    z = (defended if aware else model).trajectory(x).states[4]
    same(UnrolledState(defended, state=5, aware=aware), lambda x: unrolled(model, z, x, 5, 0.5), x)


def test_bpda_at_the_final_state_reads_the_last_purified_image(model, x):
    defended = rd.EntropyReduction(model, **SETTINGS)
    walked = defended.walk(x)
    z, moved = model.read(walked.solution).z, walked.x_read - x
    oracle = Estimate(defended, view="bpda")
    same(oracle, lambda x: unrolled(model, z, x + moved, 5, 0.5, first=True), x)
    assert_close(slope(oracle, x), slope(defended, x), rtol=0, atol=1e-12)  # the predictor's own gradient


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_what_an_oracle_shows_for_an_image_does_not_depend_on_its_batch(model, x, variant):
    """Values and gradients, with a NaN image in the batch."""
    predictor = rd.EarlyState(rd.EntropyReduction(model, variant=variant, **SETTINGS), state=8)
    batch = torch.cat([x, torch.full_like(x[:1], torch.nan)])

    def shown(oracle, x):
        x = x.clone().requires_grad_()
        surrogate, deployed = oracle.both(x)
        return surrogate.detach(), deployed, torch.autograd.grad(surrogate[:, 1].sum(), x)[0]

    for oracle in oracles_of(predictor):
        alone = [torch.cat(parts) for parts in zip(*[shown(oracle, image[None]) for image in x], strict=True)]
        for together, expected in zip(shown(oracle, batch), alone, strict=True):
            assert_close(together[:2], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_an_attack_on_the_watched_states_makes_a_wrong_class_confident(model, variant):
    x = images(6, 1, 4, 4)
    defended = rd.EntropyReduction(model, variant=variant, **SETTINGS)
    oracle, y = WatchedStates(defended), defended(x).argmax(1)
    attack = rd.PGD(rd.Linf(0.1), steps=10, step_size=0.02, loss="confident", seed=0)

    def wrong(x):  # the likeliest wrong class, over all watched states
        return oracle.surrogate(x).scatter(1, y[:, None], -torch.inf).amax(1)

    before, after = wrong(x), wrong(attack(oracle, x, y).images)
    assert (after > before).sum() >= 5  # the defence moves with the image, which the gradient takes as constant
    assert (after - before).mean() > 0.2


def test_watched_states_average_the_log_probabilities_where_the_defence_looks(model, x):
    defended = rd.EntropyReduction(model, **SETTINGS)
    trajectory = defended.trajectory(x)

    def expected(x_new):
        logs = []
        for k, t in enumerate((2, 4, 6, 8)):
            u = model.encoder(x_new + trajectory.inputs[k] - x)
            logs.append(model.head(model.dynamics(trajectory.states[t - 1], u)).log_softmax(1))
        return sum(logs) / 4

    same(WatchedStates(defended), expected, x)


def oracles_of(predictor):
    return [
        UnrolledState(predictor, state=3, values="deployed"),
        UnrolledState(predictor, state=3, aware=True, form="released", values="deployed"),
        Estimate(predictor, gradient=rd.Implicit(), values="deployed"),
        Estimate(predictor, gradient=rd.SharedInverse(), state=2, view="aware", values="deployed"),
        Estimate(predictor, state=7, view="bpda", values="deployed"),
        Exact(predictor, values="deployed"),
        WatchedStates(predictor, values="deployed"),
        Direct(predictor, values="deployed"),
    ]


def assert_split(predictor, oracles, x):
    """Every oracle shows the predictor's own logits and the surrogate's gradient."""
    deployed = predictor(x).detach()
    for oracle in oracles:
        pixels = x.clone().requires_grad_()
        logits, (surrogate, other) = oracle(pixels), oracle.both(pixels)
        if not isinstance(oracle, Direct):  # the predictor's own differentiable pass rounds in its own way
            assert torch.equal(logits, deployed)
            assert torch.equal(other, deployed)
        assert_close(logits, deployed, rtol=0, atol=1e-12)
        assert torch.equal(oracle(x), deployed)  # nothing to differentiate: the predictor alone
        assert_close(surrogate, oracle.surrogate(x), rtol=0, atol=1e-10)
        (grad,) = torch.autograd.grad(logits[:, 1].sum(), pixels)
        assert grad.abs().max() > 0
        assert_close(grad, slope(oracle.surrogate, x), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("variant", "state"), [("paper", None), ("paper", 3), ("released", 3), (None, None), (None, 3)]
)
def test_deployed_values_are_the_predictors_bit_by_bit_with_the_surrogates_gradient(model, x, variant, state):
    predictor = model if variant is None else rd.EntropyReduction(model, variant=variant, **SETTINGS)
    predictor = predictor if state is None else rd.EarlyState(predictor, state=state)
    assert_split(predictor, oracles_of(predictor), x)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_defence_around_an_early_state_watches_more_than_it_reads(model, x, variant):
    predictor = rd.EntropyReduction(rd.EarlyState(model, state=3), variant=variant, **SETTINGS)
    assert max(predictor.watched) == 8
    assert_split(predictor, oracles_of(predictor), x)


def test_deployed_values_of_an_mdeq_are_the_predictors_bit_by_bit():
    predictor = rd.EarlyState(rd.EntropyReduction(mdeq(), every=4, steps=1), state=8)
    oracles = [Estimate(predictor, state=7, view="bpda", values="deployed"), Exact(predictor, values="deployed")]
    assert_split(predictor, oracles, images(1, 3, 8, 8))


class TestCost:
    """Evaluations of f, counted."""

    @pytest.fixture
    def calls(self, model):
        calls = []
        model.dynamics.register_forward_hook(lambda *_: calls.append(1))
        return calls

    @pytest.mark.parametrize(("form", "unrolling"), [("paper", 5), ("released", 6)])
    def test_an_attack_on_state_i_takes_i_steps(self, model, calls, x, form, unrolling):
        oracle = UnrolledState(model, state=3, steps=5, form=form)
        slope(oracle, x)
        assert len(calls) == 3 + unrolling

    def test_one_solve_serves_values_and_gradients(self, model, calls, x):
        oracle = UnrolledState(rd.EarlyState(model, state=8), state=3, steps=5, values="deployed")
        slope(oracle, x)
        assert len(calls) == 8 + 5

    def test_one_solve_serves_the_unrolled_readout_too(self, model, calls, x):
        slope(UnrolledState(model, state=3, steps=5, values="deployed"), x)
        assert len(calls) == (8 + 1) + 6 + 5

    def test_an_aware_attack_runs_the_defended_pass_once(self, model, calls, x):
        defended = rd.EarlyState(rd.EntropyReduction(model, **SETTINGS), state=8)
        defended(x)
        (once, _) = len(calls), calls.clear()
        slope(UnrolledState(defended, state=8, steps=5, aware=True, values="deployed"), x)
        assert len(calls) == once + 5

    def test_an_oblivious_attack_on_a_defended_predictor_pays_for_both_passes(self, model, calls, x):
        defended = rd.EarlyState(rd.EntropyReduction(model, **SETTINGS), state=8)
        defended(x)
        (once, _) = len(calls), calls.clear()
        slope(UnrolledState(defended, state=3, steps=5, values="deployed"), x)
        assert len(calls) == once + 3 + 5

    def test_the_exact_surrogate_of_an_undefended_predictor_is_the_deployed_one(self, model, calls, x):
        slope(Exact(rd.EarlyState(model, state=8), values="deployed"), x)
        assert len(calls) == 8

    def test_watching_and_judging_a_defended_pass_takes_one(self, model, calls, x):
        defended = rd.EarlyState(rd.EntropyReduction(model, **SETTINGS), state=8)
        defended(x)
        (once, _) = len(calls), calls.clear()
        slope(WatchedStates(defended, values="deployed"), x)
        assert len(calls) == once + 4

    def test_deployed_values_without_gradients_cost_the_predictor_alone(self, model, calls, x):
        with torch.no_grad():
            UnrolledState(rd.EarlyState(model, state=4), state=8, values="deployed")(x)
        assert len(calls) == 4


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was_found(fails):
    model, x = mdeq(dropout=0.5), images(1, 3, 8, 8)
    predictor = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=1), state=4)
    expected = [slope(oracle, x) for oracle in oracles_of(predictor)]
    model.train()
    model.encoder.eval()
    model.head.requires_grad_(False)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def snapshot():
        return [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]

    before, random = snapshot(), torch.get_rng_state()
    if fails:
        model.dynamics.out_norm[0].register_forward_hook(lambda *_: 1 / 0)
    for oracle, grad in zip(oracles_of(predictor), expected, strict=True):
        if fails:
            with pytest.raises(ZeroDivisionError):
                slope(oracle, x)
        else:
            assert_close(slope(oracle, x), grad, rtol=0, atol=1e-10)
        assert snapshot() == before
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_oracles_answer_without_gradients_too(x, mode, model):
    defended = rd.EntropyReduction(model, **SETTINGS)
    for oracle in oracles_of(defended):
        expected = oracle(x).detach(), oracle.surrogate(x).detach()
        with mode():
            fresh = x.clone()
            assert torch.equal(oracle(fresh), expected[0])
            assert_close(oracle.surrogate(fresh), expected[1], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda m: UnrolledState(m, state=9), ValueError, "state counts from 1 to the solver's 8 steps, got 9"),
        (lambda m: UnrolledState(m, state=0), ValueError, "state counts from 1"),
        (lambda m: UnrolledState(m, form="article"), ValueError, "form must be 'paper' or 'released'"),
        (lambda m: UnrolledState(m, steps=0), ValueError, "needs at least one step"),
        (lambda m: UnrolledState(m, steps=-1, form="released"), ValueError, "steps must be >= 0"),
        (lambda m: UnrolledState(m, damping=0.0), ValueError, "damping is the weight of f"),
        (lambda m: UnrolledState(m, values="true"), ValueError, "values must be 'surrogate' or 'deployed'"),
        (lambda m: Estimate(m, view="blind"), ValueError, "view must be 'oblivious', 'aware' or 'bpda'"),
        (lambda m: Estimate(m, gradient=rd.ThroughSolver()), ValueError, "those of robustdeq.attacks.Exact"),
        (lambda m: Exact(m, smoothing=0.0), ValueError, "smoothing must be positive"),
        (lambda m: UnrolledState(m.head), TypeError, "got Linear; for a model without dynamics use"),
        (lambda m: Estimate(m.head), TypeError, "Estimate looks at states of a DEQ"),
        (lambda m: Exact(m.head), TypeError, "Exact"),
        (lambda m: WatchedStates(m.head), TypeError, "WatchedStates"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(model, make, error, message):
    with pytest.raises(error, match=message):
        make(model)


def test_deployed_values_can_be_switched_on(model, x):
    oracle = deployed_values(UnrolledState(model, state=2))
    assert oracle.values == "deployed"
    assert oracle.state == 2
    assert torch.equal(oracle(x), model(x))


@pytest.mark.parametrize("values", ["surrogate", "deployed"])
def test_a_state_that_a_new_solver_does_not_reach_is_refused(model, x, values):
    oracle, x = UnrolledState(model, state=4, values=values), x.requires_grad_()
    oracle(x)
    model.solver = dataclasses.replace(model.solver, max_steps=3)
    with pytest.raises(ValueError, match="3 steps, got 4"):
        oracle(x)
