"""Which forwards a training step makes, and what each of them draws."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq.threat import cross_entropy, kl
from robustdeq.training import PGDAT, TRADES, Attacked, Draws, Final, RandomState, Standard


class Forwards:
    """Records the forward passes of a DEQ: depth, readout, images, mode."""

    def __init__(self, model, monkeypatch):
        self.calls = []
        run = model.run

        def recording_run(x, **options):
            self.calls.append({"x": x.detach().clone(), "training": model.training, **options})
            return run(x, **options)

        monkeypatch.setattr(model, "run", recording_run)

    def __getitem__(self, key):
        return [call[key] for call in self.calls]


@pytest.fixture
def forwards(deq, monkeypatch):
    return Forwards(deq.train(), monkeypatch)


@pytest.mark.parametrize("clean_target", ["once", "redrawn"])
def test_trades_with_final_states_computes_the_clean_target_once(deq, batch, forwards, clean_target):
    x, y = batch
    TRADES(steps=4, clean_target=clean_target).search(deq, x, y, Draws(0, 0))
    assert sum(torch.equal(images, x) for images in forwards["x"]) == 1
    assert len(forwards.calls) == 1 + 4


@pytest.mark.parametrize(("clean_target", "count"), [("once", 1), ("redrawn", 4)])
def test_trades_with_random_states_redraws_the_clean_target_if_asked(deq, batch, forwards, clean_target, count):
    x, y = batch
    TRADES(states=RandomState(), steps=4, clean_target=clean_target).search(deq, x, y, Draws(0, 0))
    clean = [call["max_steps"] for call in forwards.calls if torch.equal(call["x"], x)]
    assert len(clean) == count
    assert count == 1 or len(set(clean)) > 1


def test_a_trades_step_makes_two_training_forwards_after_the_attack(deq, batch, forwards):
    x, y = batch
    TRADES(steps=2)(deq, x, y, Draws(0, 0))
    assert forwards["training"] == [False] * 3 + [True] * 2
    assert torch.equal(forwards["x"][3], x)
    assert not torch.equal(forwards["x"][4], x)


def test_a_pgd_at_step_makes_one_training_forward_after_the_attack(deq, batch, forwards):
    x, y = batch
    PGDAT(steps=2)(deq, x, y, Draws(0, 0))
    assert forwards["training"] == [False] * 2 + [True]


def test_every_forward_of_the_loss_draws_its_own_masks_and_the_attack_none(model, batch, monkeypatch):
    x, y = batch
    masks, bind = [], model.dynamics.bind

    def recording_bind(u, *, generator=None):
        bound = bind(u, generator=generator)
        masks.append(bound.masks)
        return bound

    monkeypatch.setattr(model.dynamics, "bind", recording_bind)
    TRADES(steps=1)(model, x, y, Draws(0, 0))
    attack, target, clean, adversarial = masks
    assert attack is None
    assert target is None
    assert not any(torch.equal(a, b) for a, b in zip(clean, adversarial, strict=True))


def test_masks_are_shared_by_every_application_of_f_in_a_forward(model, batch):
    """f of one pass is one function: asked twice, it answers the same, and another pass's f does not."""
    x, _ = batch
    draws = Draws(0, 0)
    passes = [model.run(x, generator=draws.own_generator(f"dropout.{name}")) for name in ("a", "a", "b")]
    z = passes[0].state.z
    assert torch.equal(passes[0].f(z), passes[0].f(z))
    assert torch.equal(passes[0].f(z), passes[1].f(z))
    assert not torch.equal(passes[0].f(z), passes[2].f(z))


@pytest.mark.parametrize(("variant", "readout"), [("paper", "last"), ("released", "lowest")])
def test_random_states_draw_a_depth_for_every_forward(deq, batch, forwards, variant, readout):
    x, y = batch
    TRADES(states=RandomState(variant), steps=10)(deq, x, y, Draws(0, 0))
    assert set(forwards["readout"]) == {readout}
    assert len(set(forwards["max_steps"])) > 3
    assert all(1 <= t <= 8 for t in forwards["max_steps"])


def test_final_states_always_run_all_steps(deq, batch, forwards):
    x, y = batch
    TRADES(states=Final(), steps=3)(deq, x, y, Draws(0, 0))
    assert set(forwards["max_steps"]) == {8}
    assert set(forwards["readout"]) == {"lowest"}


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_each_variant_of_random_states_reads_the_state_it_names(make_model, batch, variant):
    """paper: z^[t]; released: the lowest-residual one of z^[1..t]."""
    model, (x, _) = make_model(tol=0.0).eval(), batch
    trajectory = model.trajectory(x)
    differing = 0
    for step in range(8):
        draws = Draws(0, step)
        t = draws.integer("depth.loss", 1, 8)
        rows = torch.full((len(x),), t - 1)
        if variant == "released":
            rows = trajectory.residual[:t].argmin(0)
        differing += int((rows != t - 1).sum())
        z = trajectory.states[rows, torch.arange(len(x))]
        f, _ = model.begin(x)
        expected = model.head(f.unpack(unroll(f, z)))
        logits, _ = Standard(states=RandomState(variant)).forward(model, Attacked(x), draws, "loss", penalised=False)
        assert_close(logits, expected)
    assert variant == "paper" or differing  # otherwise the two could not be told apart


def unroll(f, z):
    y = f(z)
    for _ in range(5):
        y = (y + f(y)) / 2
    return y


def test_depths_are_uniform_over_one_to_n():
    counts = [0] * 8
    for step in range(4000):
        counts[RandomState().depth(8, Draws(0, step), "clean").max_steps - 1] += 1
    chi_square = sum((count - 500) ** 2 / 500 for count in counts)
    assert chi_square < 24.3  # 7 degrees of freedom, 0.1 %


def test_depths_are_the_same_on_every_rank_and_differ_between_forwards():
    for step in range(20):
        depths = {RandomState().depth(8, Draws(0, step, rank, 4), "clean") for rank in range(4)}
        assert len(depths) == 1
    pairs = [[RandomState().depth(8, Draws(0, step), name) for name in ("clean", "adversarial")] for step in range(200)]
    assert 0.05 < sum(a == b for a, b in pairs) / 200 < 0.25


def test_the_jacobian_penalty_jitters_the_depth_of_both_passes_alike(deq, batch, forwards):
    x, y = batch
    for step in range(12):
        TRADES(steps=1)(deq, x, y, Draws(0, step), 0.4)
    attack, target, clean, adversarial = (forwards["max_steps"][k::4] for k in range(4))
    assert clean == adversarial
    assert set(clean) == {6, 7, 8, 9}
    assert set(target) == set(attack) == {8}  # the attack is not jittered


def test_the_losses_are_the_formulas_of_their_parts(model, batch):
    x, y = batch
    model.eval()
    draws, objective = Draws(0, 0), TRADES(beta=3.0, steps=1)
    x_adv = objective.search(model, x, y, draws).images
    losses = objective.losses(model, x, y, Attacked(x_adv), draws, 0.5)
    jittered = 8 + draws.integer("depth.jitter", -2, 1)
    clean, adversarial = (model.run(images, max_steps=jittered, readout="lowest").logits for images in (x, x_adv))
    assert_close(losses.parts["ce"], cross_entropy(clean, y).mean().detach())
    assert_close(losses.parts["kl"], kl(adversarial, clean).mean().detach())
    assert losses.parts["jacobian"] > 0
    expected = losses.parts["ce"] + 3.0 * losses.parts["kl"] + 0.5 * losses.parts["jacobian"]
    assert_close(losses.total.detach(), expected)
    assert torch.equal(losses.logits, clean.detach())


@pytest.mark.parametrize(
    "objective", [Standard(), PGDAT(steps=2), TRADES(steps=2), TRADES(states=RandomState(), steps=2)]
)
def test_a_resnet_trains_with_every_objective(resnet, batch, objective):
    x, y = batch
    optimizer = torch.optim.Adam(resnet.parameters(), lr=0.01)
    totals = []
    for _ in range(4):
        losses = objective(resnet, x, y, Draws(0, 0), 1.0)
        assert "jacobian" not in losses.parts
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
        totals.append(losses.total.item())
    assert totals[-1] < totals[0]


def test_tensors_saved_for_the_backward_of_a_trades_step_do_not_grow_with_the_solver_steps(make_model, batch):
    x, y = batch

    def saved(max_steps):
        model = make_model(tol=0.0)
        model.solver = type(model.solver)(max_steps=max_steps)
        tensors = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: tensors.append(t) or t, lambda t: t):
            objective = TRADES(steps=1)
            x_adv = objective.search(model, x, y, Draws(0, 0)).images
            tensors.clear()
            objective.losses(model, x, y, Attacked(x_adv), Draws(0, 0))
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        return len(tensors), sum(storages.values())

    few, many = saved(2), saved(16)
    assert few[0] > 0
    assert few == many
