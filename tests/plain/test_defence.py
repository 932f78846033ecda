"""Algorithm 1 written out: its defining equations with dense matrices, and its evaluations of f."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import plain

DIM, CLASSES = 6, 4


@pytest.fixture
def parts():
    """A tanh cell on six pixels: f_of(x), head, x."""
    g = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    w, encoder, head = 0.3 * normal(DIM, DIM), normal(DIM, DIM), normal(DIM, CLASSES)
    x = 0.2 + 0.6 * torch.rand(3, DIM, dtype=torch.float64, generator=g)
    return lambda x: lambda z: torch.tanh(z @ w + x @ encoder), lambda z: z @ head, x


def entropy_gradient(f_of, head, z, x):
    x = x.clone().requires_grad_()
    p = torch.softmax(head(f_of(x)(z)), 1)
    return torch.autograd.grad(-(p * p.log()).sum(), x)[0]


def algorithm_1(f_of, head, x, *, max_steps, every, steps, beta, radius):
    """One image, the inverse Jacobian estimate a matrix, no freezing."""
    z, x_hat = torch.zeros(DIM, dtype=x.dtype), x
    inverse = -torch.eye(DIM, dtype=x.dtype)
    states = []

    def g(z, x):
        return (f_of(x[None])(z[None]) - z)[0]

    for t in range(max_steps):
        if (t + 1) % every == 0:
            looked_at = z - inverse @ g(z, x_hat)
            for _ in range(steps):
                x_hat = x_hat - beta * entropy_gradient(f_of, head, looked_at[None], x_hat[None])[0]
                x_hat = torch.clamp(torch.clamp(x_hat, x - radius, x + radius), 0, 1)
        before = g(z, x_hat)
        new = z - inverse @ before
        dz, dg = new - z, g(new, x_hat) - before
        row = dz @ inverse
        inverse = inverse + torch.outer(dz - inverse @ dg, row) / (row @ dg)
        z = new
        states.append(z)
    return torch.stack(states), x_hat


@pytest.mark.parametrize(("every", "steps"), [(1, 2), (2, 5), (3, 1)])
def test_the_plain_defence_is_algorithm_1_with_matrices(parts, every, steps):
    f_of, head, x = parts
    settings = {"every": every, "steps": steps, "radius": 0.1, "max_steps": 6}
    run = plain.entropy_reduction(
        f_of, head, torch.zeros_like(x), x, tol=0.0, step_size=0.5, direction="gradient", **settings
    )
    for i in range(len(x)):
        states, x_hat = algorithm_1(f_of, head, x[i], beta=0.5, **settings)
        assert_close(run.states[:, i], states, rtol=0, atol=1e-12)
        assert_close(run.inputs[-1, i], x_hat, rtol=0, atol=1e-14)
    assert (run.inputs[-1] - x).abs().max() > 0.01


@pytest.mark.parametrize("judge_last", [True, False])
def test_an_intervention_costs_r_plus_one_evaluations_beyond_the_solve(parts, judge_last):
    f_of, head, x = parts
    calls = []

    def counting(x):
        f = f_of(x)
        return lambda z: (calls.append(1), f(z))[1]

    run = plain.entropy_reduction(
        counting, head, torch.zeros_like(x), x, tol=0.0, every=2, steps=10, judge_last=judge_last
    )
    assert len(calls) == run.evaluations == 8 + judge_last + 4 * (10 + 1)
    assert run.inputs.shape == (4, *x.shape)
    assert run.entropies.shape == (4, 10, len(x))
    assert run.residuals[-1].isnan().all() == (not judge_last)


def test_released_segments_cost_r_evaluations_each_and_one_to_correct_the_history(parts):
    f_of, head, x = parts
    run = plain.released_entropy_reduction(f_of, head, torch.zeros_like(x), x, tol=0.0, every=2, steps=10)
    assert run.evaluations == (8 + 1) + 4 * 10 + 3


def test_without_inner_iterations_it_is_the_plain_solve(parts):
    f_of, head, x = parts
    solution = plain.broyden(f_of(x), torch.zeros_like(x))
    run = plain.entropy_reduction(f_of, head, torch.zeros_like(x), x, steps=0)
    assert torch.equal(run.states, solution.states)
    assert torch.equal(run.value, solution.value)
    assert run.evaluations == solution.evaluations
