"""Gradient honesty: 1 for true gradients, what is expected for false ones."""

from dataclasses import dataclass

import pytest
import torch

import robustdeq as rd
from robustdeq.attacks import Direct, Oracle, gradient_honesty

from ..defences.models import cell
from .oracles import Recorded
from .victims import RowByRow, images, predictions


@pytest.fixture
def model():
    return RowByRow().eval()


@pytest.fixture
def x():
    return 0.1 + 0.8 * images(5)


@dataclass(frozen=True, eq=False)
class Shattered(Oracle):
    """The deployed predictor with a gradient that is rotated away within the image."""

    model: torch.nn.Module

    @property
    def target(self):
        return self.model

    def estimate(self, x):
        return self.model(x.roll(1, dims=-1))


@pytest.mark.parametrize("directions", [8, 64])
def test_a_smooth_network_s_own_gradient_is_honest(model, x, directions):
    honesty = gradient_honesty({"direct": Direct(model)}, x, predictions(model, x), directions=directions)
    assert honesty.cosines["direct"].shape == (5,)
    assert honesty.min["direct"] == pytest.approx(1, abs=1e-6)
    assert honesty.mean["direct"] == pytest.approx(1, abs=1e-6)


def test_length_does_not_matter_and_a_reversed_gradient_is_minus_one(model, x):
    oracles = {"small": Recorded(model, factor=0.01), "reversed": Recorded(model, factor=-1.0)}
    honesty = gradient_honesty(oracles, x, predictions(model, x))
    assert honesty.min["small"] == pytest.approx(1, abs=1e-6)
    assert honesty.mean["reversed"] == pytest.approx(-1, abs=1e-6)


def test_a_gradient_of_something_else_and_one_that_vanishes_are_found_out(model, x):
    oracles = {"elsewhere": Shattered(model), "none": Recorded(model, factor=0.0)}
    honesty = gradient_honesty(oracles, x, predictions(model, x))
    assert honesty.mean["elsewhere"] < 0.9
    assert honesty.cosines["none"].tolist() == [0.0] * 5


def test_the_difference_quotient_of_a_predictor_is_taken_once(model, x):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    gradient_honesty({"a": Recorded(model), "b": Recorded(model)}, x, predictions(model, x), directions=4)
    assert len(calls) == 1 + 8 + 2 * 2


def test_the_table_has_a_line_for_each_oracle(model, x):
    oracles = {"direct": Direct(model), "a longer name": Recorded(model, factor=-1.0)}
    table = gradient_honesty(oracles, x, predictions(model, x)).table().splitlines()
    assert table[0].split() == ["oracle", "mean", "min"]
    assert table[1].split() == ["direct", "1.000000", "1.000000"]
    assert table[2].split()[-2:] == ["-1.000000", "-1.000000"]
    assert len({len(line) for line in table}) == 1


def test_it_works_in_inference_mode(model, x):
    with torch.inference_mode():
        honesty = gradient_honesty({"direct": Direct(model)}, x, predictions(model, x))
    assert honesty.min["direct"] == pytest.approx(1, abs=1e-6)


def test_only_the_gradient_through_the_solver_of_a_deq_is_exact():
    """With a step so small that hardly any ReLU switches."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        deq = rd.create_model("mdeq-nano", num_classes=10).eval().double()
    x = 0.1 + 0.8 * images(3, shape=(1, 8, 8))
    cosines = {}
    for gradient in (rd.ThroughSolver(), rd.Phantom()):
        deq.gradient = gradient
        honesty = gradient_honesty({"": Direct(deq)}, x, predictions(deq, x), directions=8, step=1e-6)
        cosines[type(gradient)] = honesty.min[""]
    assert cosines[rd.ThroughSolver] == pytest.approx(1, abs=1e-4)
    assert cosines[rd.Phantom] < 0.9


def test_every_estimator_of_a_deq_can_be_asked_and_only_the_exact_one_is_honest_to_the_last_digit():
    model, x = cell(), 0.1 + 0.8 * images(4, shape=(1, 4, 4))
    early = rd.EarlyState(model, state=8)
    policies = (rd.Phantom(), rd.Implicit(), rd.Neumann(), rd.OneStep(), rd.SharedInverse())
    estimators = {type(policy).__name__: rd.oracles.Estimate(early, gradient=policy) for policy in policies}
    oracles = {"exact": rd.oracles.Exact(early), "unrolled": rd.UnrolledState(early, state=3), **estimators}
    honesty = gradient_honesty(oracles, x, predictions(early, x), directions=16)
    assert honesty.min["exact"] == pytest.approx(1, abs=1e-4)
    assert honesty.min["Implicit"] > 0.99  # near the equilibrium it is nearly so
    assert honesty.mean["OneStep"] < honesty.mean["Implicit"]
    assert all(-1 <= value < 1 - 1e-9 for name, value in honesty.mean.items() if name != "exact")


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_around_a_defence_every_view_can_be_asked(variant):
    defended = rd.EarlyState(rd.EntropyReduction(cell(), every=4, steps=2, variant=variant), state=8)
    x = 0.1 + 0.8 * images(3, shape=(1, 4, 4))
    oracles = {view: rd.oracles.Estimate(defended, state=8, view=view) for view in ("oblivious", "aware", "bpda")}
    oracles |= {"exact": rd.oracles.Exact(defended), "constant": rd.oracles.Exact(defended, smoothing=None)}
    cosines = gradient_honesty(oracles, x, predictions(defended, x), directions=4).cosines
    assert set(cosines) == set(oracles)
    assert all(cosine.isfinite().all() for cosine in cosines.values())


class LinearCell(torch.nn.Module):
    """f(z; u) = A z + u with eigenvalues of A between -radius and radius, both included."""

    def __init__(self, radius, width=12):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        basis = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator)).Q
        self.a = torch.nn.Parameter(basis @ torch.diag(torch.linspace(-radius, radius, width).double()) @ basis.T)

    def forward(self, z, u):
        return z @ self.a + u


@pytest.mark.parametrize(("radius", "least"), [(0.3, 0.98), (0.6, 0.93), (0.9, 0.85)])
@pytest.mark.parametrize("follows", ["adjoint", "state and adjoint"])
def test_carried_gradients_stay_honest_while_the_images_move(radius, least, follows):
    x = 0.2 + 0.6 * images(4, shape=(1, 4, 4))
    model = cell(solver=rd.Broyden(max_steps=24), tol=1e-10)
    model.dynamics = LinearCell(radius)
    early = rd.EarlyState(model, state=24)
    z = model.trajectory(x).states[-1]
    assert rd.spectral_radius(model.begin(x)[0], z).mean().item() == pytest.approx(radius, rel=0.05)
    y, moves = predictions(early, x), torch.Generator().manual_seed(1)
    oracle = rd.oracles.CarriedEstimate(early).for_attack(4).for_rows(torch.arange(4))
    if follows == "state and adjoint":  # the surrogate's logits, beside which nothing is solved
        oracle = Shown(early, oracle)
    cosines = []
    for _ in range(5):
        cosines.append(gradient_honesty({"": oracle}, x, y, directions=16, step=1e-6).mean[""])
        x = x + 0.01 * torch.randn(x.shape, dtype=x.dtype, generator=moves).sign()
    assert min(cosines[1:]) > least


@dataclass(frozen=True, eq=False)
class Shown(Oracle):
    """Another oracle's surrogate as it is, beside the deployed values."""

    predictor: torch.nn.Module
    inner: Oracle

    @property
    def target(self):
        return self.predictor

    def estimate(self, x):
        return self.inner.surrogate(x)
