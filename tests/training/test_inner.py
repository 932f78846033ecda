"""Inner attacks that carry state and adjoint, and the meter that tells when they are too weak."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.threat import L2, Linf, cross_entropy
from robustdeq.training import PGDAT, TRADES, Attacked, Carried, Draws, Final, RandomState
from robustdeq.training.forward import CarriedState, continued_pass
from robustdeq.training.inner import InnerPolicy
from robustdeq.training.logs import read_log
from robustdeq.training.trainer import Trainer
from robustdeq.training.validation import correct_counts, inner_attack, pgd_attack, weakness
from tests.training.runs import config, resnet_config


def objectives(**options):
    return [kind(inner=Carried(), steps=3, **options) for kind in (PGDAT, TRADES)]


def name(objective):
    return type(objective).__name__


def implicit_gradient(model, x, y):
    """The gradient of the loss at the fixed point, by a long forward and a long adjoint solve."""
    model.tol = 1e-13
    solver = rd.Broyden(max_steps=60)
    x = x.clone().requires_grad_()
    logits = model.run(x, max_steps=60, gradient=rd.Implicit(solver=solver, tol=1e-13)).logits
    return torch.autograd.grad(cross_entropy(logits, y).sum(), x)[0]


def test_with_x_held_still_the_carried_gradient_converges_to_the_implicit_one(deq, batch):
    x, y = batch
    carried = Carried().begin(deq, lambda logits, step: cross_entropy(logits, y), Final(), Draws(0, 0))
    errors = []
    expected = implicit_gradient(deq, x, y)
    for step in range(200):
        errors.append((carried(x, step) - expected).abs().max().item())
    assert errors[0] > 1e-4  # the first steps are approximations
    assert errors[-1] < 1e-8


def test_an_iteration_costs_one_f_and_a_first_step_the_solve_besides(deq, batch):
    x, y = batch
    calls = []
    deq.dynamics.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    PGDAT(inner=Carried(first=4, iterations=2, extra=1), steps=3).search(deq, x, y, Draws(0, 0))
    assert calls.count(False) == 4 + 1  # the last iterate's residual too: the lowest one is read
    assert calls.count(True) == 3 * 2 + 1


@pytest.mark.parametrize("objective", objectives(), ids=name)
def test_permuting_the_batch_permutes_the_images_found(make_model, batch, objective):
    x, y = batch
    model, order, draws = make_model(), torch.tensor([3, 0, 5, 1, 4, 2]), Draws(0, 0)
    start = objective.start(x, draws)
    found = objective.search(model, x, y, draws, start=start).images
    permuted = objective.search(model, x[order], y[order], draws, start=start[order]).images
    assert_close(permuted, found[order], rtol=0, atol=1e-12)


def test_nothing_is_carried_from_batch_to_batch(make_model, batch):
    x, y = batch
    model, objective = make_model(), PGDAT(inner=Carried(), steps=2)
    first = objective.search(model, x, y, Draws(0, 0)).images
    objective.search(model, 1 - x, y, Draws(0, 1))
    assert torch.equal(objective.search(model, x, y, Draws(0, 0)).images, first)


@pytest.mark.parametrize("objective", objectives(), ids=name)
def test_a_nan_image_is_contained(make_model, batch, objective):
    x, y = batch
    model, draws = make_model(), Draws(0, 0)
    healthy = objective.search(model, x, y, draws).images
    broken = x.clone()
    broken[2, 0, 3, 3] = math.nan
    found = objective.search(model, broken, y, draws).images
    others = [0, 1, 3, 4, 5]
    assert_close(found[others], healthy[others], rtol=0, atol=1e-12)
    assert found[2].isnan().any()


@pytest.mark.parametrize("threat", [Linf(0.1), L2(1.0)])
def test_an_image_whose_gradient_is_not_finite_stays_where_it_is(deq, batch, threat):
    (x, y), cell, scale = batch, deq.dynamics.forward, torch.ones(6, 1, dtype=torch.float64)
    scale[2] = math.inf
    deq.dynamics.forward = lambda z, u: cell(z, scale * u)
    objective = PGDAT(threat=threat, steps=3, inner=Carried())
    start = objective.start(x, Draws(0, 0))
    found = objective.search(deq, x, y, Draws(0, 0), start=start).images
    assert found.isfinite().all()
    assert ((found - start).flatten(1).abs().amax(1) > 1e-9).tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize("objective", [o for t in (Linf(0.1), L2(1.0)) for o in objectives(threat=t)], ids=name)
@pytest.mark.parametrize(("split", "share"), [(True, 0.6), (False, 0.9)])  # the dynamics with a split contract less
def test_a_carried_attack_raises_the_loss_nearly_as_a_cold_one_does(make_model, deq, batch, objective, split, share):
    x, y = batch
    model, draws = (make_model() if split else deq).eval(), Draws(0, 0)
    start, size = objective.start(x, draws), objective.threat.eps / 4
    losses = {"start": loss_of(objective, model, x, start, y)}
    for policy in ("carried", "cold"):
        options = {"inner": Carried(iterations=2)} if policy == "carried" else {}
        attack = type(objective)(threat=objective.threat, steps=4, step_size=size, **options)
        found = attack.search(model, x, y, draws, start=start).images
        assert objective.threat.contains(found, x).all()
        losses[policy] = loss_of(objective, model, x, found, y)
    gains = [losses[policy] - losses["start"] for policy in ("carried", "cold")]
    assert gains[0] > share * gains[1] > 0


@torch.no_grad()
def loss_of(objective, model, x, x_adv, y):
    parts = objective.losses(model, x, y, Attacked(x_adv), Draws(0, 0)).parts
    return parts["ce" if isinstance(objective, PGDAT) else "kl"].item()


@pytest.mark.parametrize(("variant", "last"), [("paper", True), ("released", False)])
def test_random_states_draw_the_depth_of_the_first_solve_once_per_batch(deq, batch, monkeypatch, variant, last):
    x, y = batch
    depths, original = [], deq.solve

    def solve(f, z0, *, max_steps, record, judge_last):
        depths.append(max_steps)
        assert judge_last is not last
        return original(f, z0, max_steps=max_steps, record=record, judge_last=judge_last)

    monkeypatch.setattr(deq, "solve", solve)
    for step in range(24):
        PGDAT(states=RandomState(variant), inner=Carried(), steps=2).search(deq, x, y, Draws(0, step))
    assert depths == [Draws(0, step, rank=3, world_size=4).integer("depth.attack", 1, 8) for step in range(24)]
    assert set(depths) == set(range(1, 9))


def test_a_model_that_is_no_deq_is_refused(resnet, batch, tmp_path):
    x, y = batch
    with pytest.raises(TypeError, match="no state that an inner attack could carry"):
        PGDAT(inner=Carried()).search(resnet, x, y, Draws(0, 0))
    with pytest.raises(ValueError, match="inner to cold"):
        Trainer(resnet_config({"objective": {"inner": "carried"}}), tmp_path, device="cpu")


@pytest.mark.parametrize("wrong", [{"first": 0}, {"iterations": 0}, {"damping": 0.0}, {"damping": 1.5}, {"extra": -1}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Carried(**wrong)


def test_a_state_is_handed_on_only_to_passes_that_read_the_final_state():
    with pytest.raises(ValueError, match="random"):
        PGDAT(states=RandomState(), inner=Carried(handed_on=True))


@pytest.mark.parametrize("kind", [PGDAT, TRADES])
def test_the_loss_s_own_pass_starts_from_the_attack_s_last_state_if_asked(make_model, batch, monkeypatch, kind):
    """Without dropout, and with running statistics, the fixed point is the same: so is the loss, with fewer steps."""
    x, y = batch
    model, solves = make_model(tol=1e-9).eval(), []
    original = model.solve

    def solve(f, z0, *, max_steps=None, **options):
        solves.append((max_steps, bool(z0.any())))
        return original(f, z0, max_steps=max_steps, **options)

    monkeypatch.setattr(model, "solve", solve)
    objective = kind(inner=Carried(first=5, handed_on=True), steps=2)
    attacked = objective.search(model, x, y, Draws(0, 0))
    solves.clear()
    handed = objective.losses(model, x, y, attacked, Draws(0, 0))
    assert solves == ([] if kind is PGDAT else [(8, False)]) + [(5, True)]
    cold = objective.losses(model, x, y, Attacked(attacked.images), Draws(0, 0))
    assert_close(handed.total, cold.total, rtol=0.01, atol=0.01)
    assert torch.equal(objective(model, x, y, Draws(0, 0)).total, handed.total)


def test_the_loss_s_own_passes_unroll_less_if_asked(make_model, batch):
    x, y = batch
    model = make_model()
    calls = []
    monkeypatched = model.dynamics.prepare_maps
    model.dynamics.prepare_maps = lambda *args: calls.append(torch.is_grad_enabled()) or monkeypatched(*args)
    for unroll, expected in ((None, 6), (2, 3), (0, 1)):
        calls.clear()
        PGDAT(unroll=unroll, steps=0)(model, x, y, Draws(0, 0))
        assert calls.count(True) == expected


def test_label_smoothing_spreads_a_share_of_the_target_over_all_classes(make_model, batch):
    x, y = batch
    model = make_model().eval()
    losses = PGDAT(label_smoothing=0.1, steps=0).losses(model, x, y, Attacked(x), Draws(0, 0))
    expected = nn.functional.cross_entropy(losses.logits, y, label_smoothing=0.1)
    assert_close(losses.parts["ce"], expected)


INNER = {"objective": {"inner": "carried", "inner_iterations": 2}}


def test_a_carried_training_writes_what_its_inner_attack_leaves_and_how_it_was_made(tmp_path):
    reports = []
    changes = {**INNER, "schedule": {"max_steps": 2, "pretrain_steps": 0}, "validation": {"every": 2}}
    trainer = Trainer(config(changes), tmp_path, device="cpu", report=reports.append)
    trainer.fit()
    assert trainer.validation.inner is not None
    assert reports[-1].validation == trainer.validation
    assert [row["validation_inner"] != "" for row in read_log(tmp_path)] == [False, True]
    metadata = rd.load(tmp_path / "last").metadata
    assert metadata["inner"]["inner"] == "carried"
    assert metadata["inner"]["inner_iterations"] == 2
    assert metadata["validation_inner"] == trainer.validation.inner


class Blind(InnerPolicy):
    """An inner attack too weak to be of use: it follows no gradient."""

    def begin(self, model, loss, states, draws):
        return lambda x, step: torch.zeros_like(x)


def test_the_meter_tells_a_weak_inner_attack_from_one_as_strong_as_pgd():
    """A linear DEQ that reads one pixel is fooled by any attack that follows gradients."""
    deq = one_pixel_classifier()
    x = torch.rand(200, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0, 0, 0] > 0.5).long()
    pgd = pgd_attack(deq, Linf(0.1), steps=5, step_size=0.05, seed=0)
    clean, robust = correct_counts(deq, x, y, [pgd], batch_size=100)
    assert clean == 200
    left = {}
    for policy in (Carried(), Blind()):
        objective = PGDAT(threat=Linf(0.1), steps=5, step_size=0.05, inner=policy)
        attacks = [inner_attack(deq, objective, Draws(0, 0))]
        left[type(policy)] = correct_counts(deq, x, y, attacks, batch_size=100)[1]
        parts = [
            correct_counts(deq, x[i : i + 70], y[i : i + 70], attacks, batch_size=33, first=i)[1] for i in (0, 70, 140)
        ]
        assert sum(parts) == left[type(policy)]  # batches and ranks do not matter
    assert left[Carried] == robust
    assert weakness(left[Carried] / 200, robust / 200, 200, carried=True) is None
    words = weakness(left[Blind] / 200, robust / 200, 200, carried=True)
    assert "too weak" in words


def one_pixel_classifier():
    deq = rd.DEQ(encoder=nn.Flatten(), dynamics=Follow(), head=nn.Linear(192, 2)).double()
    with torch.no_grad():
        deq.head.weight.zero_()
        deq.head.weight[1, 0] = 20
        deq.head.bias.copy_(torch.tensor([10.0, 0.0]))
    return deq


class Follow(nn.Module):
    """f(z; u) = (z + u) / 2, whose fixed point is u."""

    def forward(self, z, u):
        return (z + u) / 2


def test_a_gap_of_few_images_is_no_warning():
    assert weakness(0.32, 0.30, 1000, carried=True) is None
    assert weakness(0.33, 0.30, 1000, carried=True) is not None
    assert weakness(0.40, 0.30, 20, carried=True) is None
    assert weakness(0.60, 0.30, 20, carried=True) is not None


def test_a_training_says_in_its_progress_that_its_inner_attack_is_too_weak(tmp_path, monkeypatch):
    monkeypatch.setattr("robustdeq.training.trainer.correct_counts", lambda *_, **__: [20, 2, 15, 5])
    reports = []
    Trainer(resnet_config(), tmp_path, device="cpu", report=reports.append).fit()
    assert [report.warning is not None for report in reports] == [False, True, False, True]
    assert (
        "leaves 75.0% of the held-out images where PGD from cold starts up the same loss leaves 25.0%"
        in reports[1].warning
    )


def test_a_pass_that_starts_at_a_carried_state_differentiates_the_solver_where_the_gradient_policy_does(deq, batch):
    deq.gradient = rd.ThroughSolver()
    x, y = batch
    objective = PGDAT(inner=Carried(handed_on=True), steps=2, step_size=0.02)
    objective(deq, x, y, Draws(0, 0)).total.backward()
    assert all(p.grad is not None and p.grad.any() for p in deq.dynamics.parameters())


def test_a_carried_state_that_is_not_finite_is_replaced_before_the_loss(deq, batch):
    x, _ = batch
    _, z0 = deq.begin(x)
    z = torch.zeros_like(z0)
    z[0] = torch.nan
    logits = continued_pass(deq, x, CarriedState(z, 3), Draws(0, 0), "loss", deq.gradient)
    assert logits.isfinite().all()


class StateAlone(InnerPolicy):
    """The state is carried by one f per inner step and the adjoint is left out: the gradient is (df/dx)^T g."""

    def begin(self, model, loss, states, draws):
        kept = []

        def gradient(x, step):
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                f, z0 = model.begin(x)
                y = f(kept.pop() if kept else model.solve(f, z0, max_steps=4).value.detach())
                kept.append(y.detach())
                return torch.autograd.grad(loss(model.head(y), step).sum(), x)[0]

        return gradient


class Chain(nn.Module):
    """f(z; u) = (u_0 + k z_1, u_1): the second pixel reaches the first entry through the dynamics alone."""

    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(torch.tensor([2.0]))

    def forward(self, z, u):
        return torch.stack([u[:, 0] + self.k * z[:, 1], u[:, 1]], 1)


class Centred(nn.Module):
    def forward(self, x):
        return 10 * (x.flatten(1) - 0.5)


def two_pixels(count, seed):
    """The first pixel says the class robustly, for three quarters of the images; the second always, but within eps."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (count,), generator=g)
    agrees = torch.where(torch.rand(count, generator=g) < 0.75, 1, -1)
    first = 0.15 * (2 * y - 1) * agrees + 0.02 * torch.randn(count, generator=g)
    second = 0.05 * (2 * y - 1) + 0.001 * torch.randn(count, generator=g)
    return 0.5 + torch.stack([first, second], 1).view(count, 1, 1, 2).double(), y


class FromTheImage(TRADES):
    """One large step from the image itself."""

    def __init__(self):
        super().__init__(threat=Linf(0.1), steps=1, step_size=0.1)

    def start(self, x, draws):
        return x.clone()


def pgd_at(inner):
    return PGDAT(threat=Linf(0.1), steps=4, step_size=0.05, inner=inner)


@pytest.mark.parametrize(
    ("objective", "caught"),
    [
        (pgd_at(StateAlone()), True),
        (FromTheImage(), True),
        (pgd_at(Carried()), False),
        (pgd_at(rd.Cold()), False),
        (TRADES(threat=Linf(0.1), steps=4, step_size=0.05), False),
    ],
    ids=["state alone", "one large step without a random start", "carried", "cold", "TRADES"],
)
def test_a_training_whose_inner_attack_is_too_weak_is_caught_by_the_meter(objective, caught):
    """The model may use the second pixel, which is not robust, and hide it from an attack that sees f's first step."""
    model = rd.DEQ(
        encoder=Centred(),
        dynamics=Chain(),
        head=nn.Linear(2, 2),
        gradient=rd.Phantom(2, 1.0),
        solver=rd.Picard(max_steps=4),
    ).double()
    with torch.no_grad():  # already hiding a little: an attack that sees it has the model unlearn that
        model.head.weight.copy_(torch.tensor([[-1.0, 0.3], [1.0, -0.3]]))
        model.head.bias.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y = two_pixels(128, seed=0)
    for step in range(100):
        optimizer.zero_grad()
        objective(model, x, y, Draws(0, step)).total.backward()
        optimizer.step()
    x, y = two_pixels(200, seed=1)
    pgd = partial(pgd_attack, model, Linf(0.1), steps=10, step_size=0.025, seed=0)
    same_loss = pgd(climbed=partial(objective.climbed, model, draws=Draws(0, 0)))
    attacks = [inner_attack(model, objective, Draws(0, 0)), same_loss, pgd()]
    clean, inner, standard, robust = correct_counts(model, x, y, attacks, batch_size=200)
    assert (weakness(inner / 200, standard / 200, 200, carried=True) is not None) == caught
    if caught:
        assert clean > robust + 40
