"""The oracle that carries state and adjoint: what it converges to, and that nothing leaks."""

import dataclasses
import math

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.attacks.oracles import CarriedEstimate, Estimate
from robustdeq.threat import cross_entropy

from ..defences.models import cell, images, mdeq

BALL = rd.Linf(0.1)
ATTACKS = [
    rd.PGD(BALL, steps=4),
    rd.PGD(BALL, steps=3, loss="kl", restarts=3),
    rd.APGD(BALL, n_iter=6),
    rd.APGD(BALL, n_iter=4, loss="dlr_targeted", targets=2, restarts=2),
    rd.FABT(BALL, n_iter=3, targets=2),
]
every_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
both_values = pytest.mark.parametrize("values", ["surrogate", "deployed"])
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])


@pytest.fixture
def model():
    return cell(tol=0.0)


@pytest.fixture
def x():
    return images(6, 1, 4, 4)


def near(model, x):
    """Labels of images that some attacks break: the likeliest class, and for two images the second likeliest."""
    y = model(x).argsort(1, descending=True)
    return torch.where(torch.arange(len(x)) < 4, y[:, 0], y[:, 1])


def slope(oracle, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(oracle(x)[:, 1].sum(), x)[0]


def implicit(model, x):
    exact = Estimate(model, gradient=rd.Implicit(solver=rd.Broyden(max_steps=60), tol=1e-13))
    solver, tol, model.solver, model.tol = model.solver, model.tol, rd.Broyden(max_steps=60), 1e-13
    expected = slope(exact, x)
    model.solver, model.tol = solver, tol
    return expected


def test_its_name_says_its_settings_and_nothing_of_what_it_carries(model, x):
    oracle = CarriedEstimate(model, iterations=2)
    assert ATTACKS[0](oracle, x, near(model, x)).oracle == oracle.name == "CarriedEstimate(iterations=2)"


def test_with_x_held_still_the_gradient_converges_to_the_implicit_one(model, x):
    passes = CarriedEstimate(model).for_attack(6).for_rows(torch.arange(6))
    expected = implicit(model, x)
    errors = [(slope(passes, x) - expected).abs().max().item() for _ in range(300)]
    assert errors[0] > 1e-4  # the first passes are approximations
    assert errors[-1] < 1e-8


def test_at_a_deployed_state_that_has_converged_the_carried_adjoint_alone_gives_the_implicit_gradient(x):
    model = cell(solver=rd.Broyden(max_steps=40), tol=1e-13)
    oracle = CarriedEstimate(rd.EarlyState(model, state=40), values="deployed")
    x, passes = x[:2], dataclasses.replace(oracle, damping=1.0, iterations=9).for_attack(2).for_rows(torch.arange(2))
    gradients = [slope(passes, x) for _ in range(25)]
    assert_close(gradients[-1], implicit(model, x), rtol=0, atol=1e-8)


def test_the_first_passes_are_the_formulas_of_the_method(model, x):
    d, oracle = 0.5, CarriedEstimate(model, first=3, iterations=1, extra=2)
    u = model.encoder(x)
    z = model.solve(*model.begin(x), max_steps=3).value.detach()
    passes, rest = oracle.for_attack(6).for_rows(torch.arange(6)), 0
    for iterations, k in ((3, 1), (1, 1), (1, 2)):  # the last pass differentiates another logit
        z_, x_ = z.detach().requires_grad_(), x.clone().requires_grad_()
        y = model.dynamics(z_, model.encoder(x_))
        logits = model.head(y)
        (g,) = torch.autograd.grad(logits[:, k].sum(), y, retain_graph=True)
        a = g + rest
        for _ in range(iterations):
            a = (1 - d) * a + d * (g + torch.autograd.grad(y, z_, a, retain_graph=True)[0])
        shown = x.clone().requires_grad_()
        seen = passes(shown)
        assert_close(seen, logits, rtol=0, atol=1e-12)
        assert_close(
            torch.autograd.grad(seen[:, k].sum(), shown)[0], torch.autograd.grad(y, x_, a)[0], rtol=0, atol=1e-12
        )
        rest = a - g
        z = (1 - d) * z + d * model.dynamics(z, u).detach()


@both_values
@every_attack
@pytest.mark.parametrize("every_image", [True, False])
def test_an_image_s_result_does_not_depend_on_its_batch(model, x, values, attack, every_image):
    oracle, y = CarriedEstimate(rd.EarlyState(model, state=8), values=values, iterations=2), near(model, x)
    whole = attack(oracle, x, y, every_image=every_image, index=range(6))
    permuted = attack(oracle, x[ORDER], y[ORDER], every_image=every_image, index=ORDER.tolist())
    assert_close(permuted.images, whole.images[ORDER], rtol=0, atol=1e-12)
    alone = attack(oracle, x[3:4], y[3:4], every_image=every_image, index=[3])
    assert_close(alone.images, whole.images[3:4], rtol=0, atol=1e-12)
    assert torch.equal(alone.queries, whole.queries[3:4])


@both_values
def test_a_restart_of_an_attack_starts_cold(model, x, values):
    """The second run of two is the single run that starts at its start."""
    oracle, y = CarriedEstimate(model, values=values), model(x).argmax(1)
    seen = []

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Twice(rd.PGD):
        def _judged(self, task, rows, run, loss):
            result = super()._judged(task, rows, run, loss)
            seen.append((self.begin(task, rows, run), result.images, rows))
            return result

    Twice(BALL, steps=4, restarts=2)(oracle, x, y)
    (_, _, _), (start, found, rows) = seen
    assert len(rows) > 0
    again = rd.PGD(BALL, steps=4)(oracle, x[rows], y[rows], start=start)
    assert torch.equal(found, again.images)


@both_values
def test_nothing_is_carried_from_one_attack_to_the_next(model, x, values):
    oracle, attack, y = CarriedEstimate(model, values=values), rd.PGD(BALL, steps=4), model(x).argmax(1)
    first = attack(oracle, x, y).images
    attack(oracle, 1 - x, y)
    assert torch.equal(attack(oracle, x, y).images, first)


def test_called_directly_every_pass_starts_cold_whatever_was_shown_before(model, x):
    oracle = CarriedEstimate(model, values="deployed")
    first = slope(oracle, x)
    slope(oracle, 1 - x)
    assert torch.equal(slope(oracle, x), first)
    assert_close(slope(oracle, x[ORDER]), first[ORDER], rtol=0, atol=1e-12)


def test_differentiating_one_pass_twice_starts_twice_from_the_same_adjoint(model, x):
    passes = CarriedEstimate(model).for_attack(6).for_rows(torch.arange(6))
    slope(passes, x)
    variable = x.clone().requires_grad_()
    logits = passes(variable)
    once, _, again = (torch.autograd.grad(logits[:, k].sum(), variable, retain_graph=True)[0] for k in (1, 0, 1))
    assert torch.equal(once, again)


def test_the_deployed_values_are_those_of_a_cold_pass(model, x):
    early = rd.EarlyState(model, state=8)
    passes = CarriedEstimate(early, values="deployed").for_attack(6).for_rows(torch.arange(6))
    for shift in (0.0, 0.05, -0.05):
        variable = (x + shift).clamp(0, 1).requires_grad_()
        assert torch.equal(passes(variable), early(variable))
        slope(passes, variable.detach())


def test_a_pass_costs_one_f_where_the_state_is_carried(model, x):
    calls = []
    model.dynamics.register_forward_hook(lambda *_: calls.append(1))
    rd.PGD(BALL, steps=5)(CarriedEstimate(model, first=4, iterations=2), x, x.new_zeros(6, dtype=torch.int64))
    judging = 8 + 1 + model.gradient.steps + 1  # the deployed logits
    assert len(calls) == 4 + 1 + 5 * 2 + judging


@both_values
@every_attack
def test_a_nan_image_is_contained(model, x, values, attack):
    oracle, y, broken = CarriedEstimate(model, values=values), model(x).argmax(1), x.clone()
    broken[2, 0, 1, 1] = math.nan
    others = [0, 1, 3, 4, 5]
    found = attack(oracle, broken, y, index=range(6)).images
    assert_close(found[others], attack(oracle, x, y, index=range(6)).images[others], rtol=0, atol=1e-12)
    assert found[2].isnan().any()


def test_a_state_that_became_non_finite_starts_cold_again(model, x):
    oracle = CarriedEstimate(model).for_attack(6)
    passes = oracle.for_rows(torch.arange(6))
    expected = slope(passes, x)
    for kept in (oracle.memory.states, oracle.memory.rests):
        values = kept.values.clone()
        values[4] = math.nan
        kept.keep(torch.arange(6), values)
    gradient = slope(passes, x)
    assert gradient.isfinite().all()
    assert_close(gradient[4], expected[4], rtol=0, atol=1e-12)
    healthy = CarriedEstimate(model).for_attack(6).for_rows(torch.arange(6))
    others, (_, second) = [0, 1, 2, 3, 5], (slope(healthy, x), slope(healthy, x))
    assert_close(gradient[others], second[others], rtol=0, atol=1e-12)  # no extra iterations beside a cold image


def test_a_pass_without_a_gradient_changes_nothing(model, x):
    plain, looked_at = (CarriedEstimate(model).for_attack(6).for_rows(torch.arange(6)) for _ in range(2))
    assert torch.equal(slope(plain, x), slope(looked_at, x))
    looked_at(1 - x)
    with torch.no_grad():
        looked_at((1 - x).requires_grad_())
    assert torch.equal(slope(plain, x), slope(looked_at, x))


@pytest.mark.parametrize("view", ["oblivious", "aware", "bpda"])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_around_a_defence_every_view_can_be_attacked_and_batch_mates_do_not_matter(model, x, view, variant):
    defended = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=2, variant=variant), state=8)
    oracle, attack = CarriedEstimate(defended, view=view, values="deployed"), rd.APGD(BALL, n_iter=4)
    y = defended(x).argmax(1)
    whole = attack(oracle, x, y, index=range(6))
    assert_close(
        attack(oracle, x[ORDER], y[ORDER], index=ORDER.tolist()).images, whole.images[ORDER], rtol=0, atol=1e-12
    )
    assert torch.equal(whole.logits, defended(whole.images))


def test_the_attack_is_nearly_as_strong_as_with_cold_gradients(model):
    x = images(24, 1, 4, 4)
    y = model(x).argmax(1)
    clean, gains = cross_entropy(model(x), y).mean(), {}
    for name, oracle in (("carried", CarriedEstimate(model, iterations=2)), ("cold", Estimate(model))):
        found = rd.PGD(BALL, steps=10)(oracle, x, y)
        gains[name] = (cross_entropy(found.logits, y).mean() - clean).item()
    assert gains["carried"] > 0.95 * gains["cold"] > 0


def test_dropout_and_batch_statistics_play_no_part_and_the_model_is_left_as_it_was():
    model, x = mdeq(dropout=0.4), images(4, 3, 8, 8)
    y, attack = model(x).argmax(1).detach(), rd.APGD(rd.Linf(0.02), n_iter=3)
    expected = attack(CarriedEstimate(model, values="deployed"), x, y).images
    model.train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert torch.equal(attack(CarriedEstimate(model, values="deployed"), x, y).images, expected)
    assert all(m.training for m in model.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("wrong", [{"first": 0}, {"iterations": 0}, {"damping": 1.5}, {"extra": -1}, {"view": "seen"}])
def test_settings_that_make_no_sense_are_refused(model, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CarriedEstimate(model, **wrong)


def test_a_model_without_dynamics_is_refused_with_a_remedy():
    with pytest.raises(TypeError, match="without dynamics use"):
        CarriedEstimate(torch.nn.Flatten())
