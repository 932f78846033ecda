"""Everything that a user runs on a GPU, on a device without hardware: the same numbers as on the CPU, and few waits."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd
from robustdeq.data import load_digits
from robustdeq.evaluation.audit.probes import Views, probe
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.training.assembly import update_average
from robustdeq.training.draws import Draws
from robustdeq.training.step import TrainStep
from robustdeq.training.validation import correct_counts, pgd_attack

from .harness import DEVICE, Elsewhere, MixedDevicesError, elsewhere, here, there

SOLVERS = [rd.Broyden(max_steps=4), rd.Anderson(max_steps=4), rd.Picard(max_steps=4, damping=0.7)]
GRADIENTS = [
    rd.Phantom(steps=2, damping=0.5), rd.Unrolled(steps=2, damping=0.5), rd.OneStep(), rd.Neumann(steps=2, damping=0.5),
    rd.Implicit(solver=rd.Broyden(max_steps=3)), rd.SharedInverse(), rd.ThroughSolver(),
]  # fmt: skip
LINF = rd.Linf(0.1)


def name_of(value):
    return type(value).__name__ if not isinstance(value, str) else value


@pytest.fixture(scope="module")
def trained():
    """A model whose weights and statistics are far from their initial values, and four digits."""
    train, _, _ = load_digits()
    x, y = train.pixels[:4].float() / 255, train.labels[:4]
    torch.manual_seed(0)
    model = rd.MDEQ(
        in_channels=1, channels=(8, 16), expansion=2, groups=4, dropout=0.1, head_channels=(4, 8), final_channels=32,
        downsample=1, solver=rd.Broyden(max_steps=4), gradient=rd.Phantom(steps=2),
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(30):
        optimizer.zero_grad()
        rd.Standard()(model.train(), x, y, Draws(0, step)).total.backward()
        optimizer.step()
    return model.eval().double(), x.double(), y  # float64: nothing but a mistake makes a difference


@pytest.fixture
def model(trained):
    return deepcopy(trained[0])


@pytest.fixture
def digits(trained):
    return trained[1:]


def compare(run, model, *tensors, rtol=1e-7, atol=1e-9, most=None):
    """run(model, *tensors) on both devices: equal results, all of them there; at most so many waits for the device."""
    expected = run(deepcopy(model), *tensors)
    with elsewhere() as device:
        moved, *arguments = there((deepcopy(model).to(DEVICE), *tensors))
        arguments = [there(t) for t in arguments]
        device.waits.clear()
        result = run(moved, *arguments)
        waits = device.waits.total()
        assert all(isinstance(t, Elsewhere) for t in result)
        result = here(tuple(t.detach() for t in result))
    assert device.ran.total() > 0
    assert_close(result, tuple(t.detach() for t in expected), rtol=rtol, atol=atol)
    if most is not None:
        assert waits <= most, device.waits
    return device


@pytest.mark.parametrize("solver", SOLVERS, ids=name_of)
def test_a_solve_waits_once_a_step(model, digits, solver):
    model.solver = solver
    compare(lambda m, x: m.trajectory(x).states[None], model, digits[0], most=solver.max_steps + 1)  # + the folding


@pytest.mark.long
@pytest.mark.parametrize("gradient", GRADIENTS, ids=name_of)
def test_the_gradient_policies_compute_there_what_they_compute_here(model, digits, gradient):
    model.gradient = gradient

    def gradients(m, x):
        x = x.detach().requires_grad_()
        logits = m(x)
        weights = [p for p in m.parameters() if p.requires_grad]
        return (logits, *torch.autograd.grad(logits.square().sum(), [x, *weights], allow_unused=False))

    steps = model.solver.max_steps
    adjoint = gradient.solver.max_steps if isinstance(gradient, rd.Implicit) else 0
    compare(gradients, model, digits[0], most=steps + adjoint + 1)


STEPS = {
    "pgdat-cold": rd.PGDAT(threat=LINF, steps=2, step_size=0.05),
    "pgdat-handed-on": rd.PGDAT(threat=LINF, steps=2, step_size=0.05, inner=rd.Carried(first=2, handed_on=True)),
    "trades-cold-random": rd.TRADES(threat=LINF, steps=2, step_size=0.05, states=rd.RandomState()),
    "trades-carried-random": rd.TRADES(
        threat=LINF, steps=2, step_size=0.05, states=rd.RandomState(), inner=rd.Carried(first=2)
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("objective", STEPS.values(), ids=STEPS)
def test_a_training_step_with_its_optimizer_and_average(model, digits, objective):
    def step(m, x, y):
        m.train()
        average = deepcopy(m)
        optimizer = torch.optim.Adam(m.parameters(), lr=1e-3)
        losses = TrainStep(m, objective, 2)(x, y, (0, 0, 0, 1), "train", 0.4)
        losses.total.backward()
        optimizer.step()
        update_average(average, m, 0.9, 5)
        return losses.total, *m.state_dict().values(), *average.state_dict().values()

    # at most a clean and an attacked pass of the loss, the target of TRADES, and a solve per attack step
    compare(step, model, *digits, most=(2 + 1 + 2) * model.solver.max_steps)


@pytest.mark.long
def test_pretraining_and_validation(model, digits):
    def pretrain(m, x, y):
        losses = TrainStep(m.train(), rd.TRADES(threat=LINF), 3)(x, y, (0, 0, 0, 1), "pretrain")
        losses.total.backward()
        return losses.total, *(p.grad for p in m.parameters())

    compare(pretrain, model, *digits, most=0)

    def validate(m, x, y):
        attack = pgd_attack(m, LINF, steps=2, step_size=0.05, seed=0)
        return (torch.tensor(correct_counts(m.eval(), x, y, [attack], batch_size=2), device=x.device),)

    compare(validate, model, *digits)


ORACLES = {
    "unrolled": lambda p: rd.UnrolledState(p, state=2, steps=2, damping=0.5),
    "unrolled-deployed": lambda p: rd.UnrolledState(p, state=2, steps=2, damping=0.5, values="deployed"),
    "unrolled-aware": lambda p: rd.UnrolledState(p, state=3, steps=1, damping=0.5, aware=True),
    "phantom": lambda p: rd.oracles.Estimate(p, rd.Phantom(steps=2)),
    "implicit": lambda p: rd.oracles.Estimate(p, rd.Implicit(solver=rd.Broyden(max_steps=3))),
    "bpda": lambda p: rd.oracles.Estimate(p, rd.Phantom(steps=2), view="bpda"),
    "exact": lambda p: rd.oracles.Exact(p),
    "watched": lambda p: rd.oracles.WatchedStates(p),
    "direct": lambda p: rd.oracles.Direct(p),
}
DEFENCES = {
    "none": lambda m: m,
    "early": lambda m: rd.EarlyState(m, state=3),
    "entropy": lambda m: rd.EntropyReduction(m, every=2, steps=2, step_size=0.02, radius=0.1),
    "released": lambda m: rd.EntropyReduction(m, every=2, steps=2, step_size=0.02, radius=0.1, variant="released"),
    "early-entropy": lambda m: rd.EarlyState(rd.EntropyReduction(m, every=2, steps=2), state=4),
}


@pytest.mark.long
@pytest.mark.parametrize("defence", DEFENCES)
def test_defended_predictions_and_trajectories(model, digits, defence):
    def run(m, x):
        predictor = DEFENCES[defence](m)
        trajectory = predictor.trajectory(x)
        return predictor(x).detach(), trajectory.states, trajectory.logits, trajectory.entropy, trajectory.residual

    # a pass for the logits and one for the trajectory; each step, each intervention and each folding waits once
    compare(run, model, digits[0], most=2 * (4 + 4 + 2))


@pytest.mark.long
@pytest.mark.parametrize("oracle", ORACLES)
def test_every_oracle_shows_there_what_it_shows_here(model, digits, oracle):
    def run(m, x):
        predictor = rd.EarlyState(
            rd.EntropyReduction(m, every=2, steps=2, step_size=0.02, direction="gradient"), state=4
        )
        x = x.detach().requires_grad_()
        logits = ORACLES[oracle](predictor)(x)
        if oracle == "watched":
            logits = logits[0] if isinstance(logits, tuple) else logits
        return logits, torch.autograd.grad(logits.square().sum(), x)[0]

    compare(run, model, digits[0])


ATTACKS = {
    "pgd": rd.PGD(LINF, steps=3, step_size=0.05),
    "pgd-l2": rd.PGD(rd.L2(0.5), steps=3),
    "pgd-restarts": rd.PGD(LINF, steps=2, restarts=2, loss="margin"),
    "apgd-ce": rd.APGD(LINF, n_iter=4),
    "apgd-dlr-targeted": rd.APGD(LINF, n_iter=2, loss="dlr_targeted", targets=1),
    "fab-t": rd.FABT(LINF, n_iter=1, targets=1),
    "square": rd.Square(LINF, n_queries=5),
}


@pytest.mark.long
@pytest.mark.parametrize("every_image", [True, False])
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_finds_there_what_it_finds_here(model, digits, attack, every_image):
    def run(m, x, y):
        result = ATTACKS[attack](rd.UnrolledState(rd.EarlyState(m, state=4), state=3, steps=1, damping=0.5), x, y,
                                 every_image=every_image)  # fmt: skip
        return result.images, result.success, result.logits

    compare(run, model, *digits)


@pytest.mark.long
def test_an_attack_step_on_a_surrogate_waits_once_a_solver_step_and_no_more(model, digits):
    """Two runs that differ in their number of steps alone: what the attack waits for at its ends cancels."""

    def attacked(m, x, y, steps):
        oracle = rd.UnrolledState(rd.EarlyState(m, state=4), state=3, steps=1, damping=0.5)
        return [rd.PGD(LINF, steps=steps, step_size=0.02)(oracle, x, y).images]

    def waits(steps):
        return compare(lambda m, x, y: attacked(m, x, y, steps), model, *digits).waits

    one, four = waits(1), waits(4)
    assert (four.total() - one.total()) / 3 <= 3 + 1, four - one


@pytest.mark.long
def test_an_evaluation_and_the_audits_probes(model, digits, tmp_path):
    x, y = digits
    expected = rd.evaluate(rd.EarlyState(deepcopy(model), state=4), (x, y), suite="quick", out=tmp_path / "here")
    with elsewhere():
        moved, there_x, there_y = deepcopy(model).to(DEVICE), there(x), there(y)
        found = rd.evaluate(rd.EarlyState(moved, state=4), (x, y), suite="quick", out=tmp_path / "there")
        probed = probed_at_state_4(moved, there_x, there_y)
    assert found.table() == expected.table()
    assert probed == probed_at_state_4(model, x, y)


def probed_at_state_4(model, x, y):
    predictor = rd.EarlyState(model, state=4)
    views = Views(rd.UnrolledState(predictor, state=3, steps=1, damping=0.5), rd.oracles.Exact(predictor))
    return probe(Subject(predictor), views, x, y, LINF)


def test_checkpoints_move_between_devices(model, digits, tmp_path):
    expected = model(digits[0]).detach()
    with elsewhere():
        deepcopy(model).to(DEVICE).save_pretrained(tmp_path / "there")
    loaded = rd.load(tmp_path / "there").eval()
    assert torch.equal(loaded(digits[0]).detach(), expected)
    with elsewhere():
        again = rd.load(tmp_path / "there").to(DEVICE).eval()
        assert_close(here(again(there(digits[0])).detach()), expected)


def test_autocast_keeps_the_state_in_float32(model, digits):
    model.solver = replace(model.solver, max_steps=2)
    with elsewhere(), torch.autocast("cpu", dtype=torch.bfloat16):
        moved = deepcopy(model).float().to(DEVICE)
        trajectory = moved.trajectory(there(digits[0].float()))
        assert trajectory.states.dtype == torch.float32
        assert here(trajectory.states).isfinite().all()


def test_the_harness_refuses_what_a_gpu_refuses_and_counts_what_it_waits_for():
    with elsewhere() as device:
        x = there(torch.arange(4.0))
        with pytest.raises(MixedDevicesError, match="both devices"):
            x + torch.ones(4)
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
        with pytest.raises(MixedDevicesError, match="generator"):
            torch.rand(3, device=DEVICE, generator=torch.Generator())
        assert not device.waits
        assert (2 * x).sum().item() == 12  # numbers go along
        assert x[x > 1].tolist() == [2, 3]  # the size, and the numbers themselves
        assert x[torch.tensor([1, 2])].device == DEVICE  # indices may lie on the CPU
        assert sorted(device.waits.values()) == [1, 1, 1]
    with pytest.raises(RuntimeError, match="outside"):
        x + 1
