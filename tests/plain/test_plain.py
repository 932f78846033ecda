"""The plain implementation and ours compute the same numbers, and its evaluations of f are counted."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import robustdeq as rd
from robustdeq import plain


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = rd.MDEQ(
        channels=(4, 8, 8), head_channels=(2, 2, 4), final_channels=12, expansion=2, groups=4, dropout=0.3
    ).double()
    for p in model.parameters():  # MDEQ's initialisation is nearly linear: make the dynamics matter
        p.data += 0.3 * torch.randn(p.shape, dtype=p.dtype)
    return model.eval()


@pytest.fixture
def x():
    return torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_states_residuals_and_the_chosen_iterate_equal_the_plain_ones(model, x):
    f = plain.CountedDynamics(model, model.encoder(x))
    expected = plain.solve(f)
    f_ours, z0 = model.begin(x)
    with torch.no_grad():
        ours = model.solve(f_ours, z0)
    assert_close(ours.trajectory, expected.states, rtol=1e-9, atol=1e-10)
    assert_close(ours.residuals, expected.residuals, rtol=1e-9, atol=1e-12)
    assert_close(ours.value, expected.value, rtol=1e-9, atol=1e-10)
    assert ours.lowest_step.tolist() == expected.lowest_step.tolist()


def test_the_plain_solve_evaluates_f_n_plus_one_times_and_so_does_ours(model, x):
    f = plain.CountedDynamics(model, model.encoder(x))
    solution = plain.solve(f, max_steps=5, tol=0.0)
    assert f.evaluations == solution.evaluations == 6
    f_ours, z0 = model.begin(x)
    assert model.solve(f_ours, z0, max_steps=5).evaluations == 6


def test_logits_and_gradients_equal_the_plain_ones(model, x):
    y = torch.tensor([0, 3, 7])
    results = []
    for logits_of in (model, lambda images: plain.predict(model, images)[0]):
        images = x.clone().requires_grad_()
        logits = logits_of(images)
        gradients = torch.autograd.grad(F.cross_entropy(logits, y), [images, *model.parameters()])
        results.append((logits, gradients))
    (ours, ours_gradients), (expected, expected_gradients) = results
    assert_close(ours, expected, rtol=0, atol=1e-10)
    for a, b in zip(ours_gradients, expected_gradients, strict=True):
        assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_a_plain_prediction_evaluates_f_for_the_solve_and_the_unrolling(model, x):
    _, f = plain.predict(model, x, max_steps=8, steps=5)
    assert f.evaluations == (8 + 1) + (5 + 1)


def test_train_mode_with_the_same_masks_equals_the_plain_pass(model, x):
    model.train()
    masks = [torch.bernoulli(torch.full((3, c), 0.7, dtype=torch.float64)) / 0.7 for c in model.config.channels]
    expected, _ = plain.predict(model, x, masks=masks)
    f = model.dynamics.bind(model.encoder(x), masks=masks)
    with torch.no_grad():
        state = model.read(model.solve(f, model.dynamics.initial(f.u)))
    ours = model.head(f.unpack(model.gradient.connect(f, state)))
    assert_close(ours, expected, rtol=0, atol=1e-9)


def test_a_sample_that_converges_freezes_in_the_plain_solver_too():
    rates = torch.tensor([[0.001], [0.9]], dtype=torch.float64)
    target = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
    solution = plain.broyden(lambda z: target + rates * torch.sin(z), torch.zeros(2, 2, dtype=torch.float64))
    ours = rd.fixed_point(
        lambda z: target + rates * torch.sin(z), torch.zeros(2, 2, dtype=torch.float64), rd.Broyden(max_steps=8)
    )
    assert ours.steps[0] < 8
    assert_close(solution.states, ours.trajectory, rtol=1e-9, atol=1e-11)
