"""With judge_last=False one evaluation of f is saved and no iterate changes."""

import pytest
import torch
from torch.testing import assert_close

import robustdeq as rd

SOLVERS = [rd.Broyden, rd.Anderson, rd.Picard]


def problem():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([[1e-6], [0.7], [0.9]], dtype=torch.float64)
    b = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    return lambda z: rates * torch.sin(z) + b, torch.zeros(3, 5, dtype=torch.float64)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_the_iterates_are_the_same_and_one_evaluation_is_saved(solver, steps):
    f, z0 = problem()
    judged = rd.fixed_point(f, z0, solver(max_steps=steps))
    unjudged = rd.fixed_point(f, z0, solver(max_steps=steps), judge_last=False)
    assert_close(unjudged.trajectory, judged.trajectory, rtol=0, atol=0)
    assert_close(unjudged.last, judged.last, rtol=0, atol=0)
    assert unjudged.steps.tolist() == judged.steps.tolist()
    assert (judged.evaluations, unjudged.evaluations) == (steps + 1, steps)


def test_the_last_residual_is_nan_and_the_last_iterate_is_no_candidate_for_the_value():
    f, z0 = problem()
    unjudged = rd.fixed_point(f, z0, rd.Broyden(max_steps=5), judge_last=False)
    frozen = unjudged.status == rd.Status.CONVERGED
    assert frozen.tolist() == [True, False, False]
    assert unjudged.residuals[-1].isnan().tolist() == [False, True, True]
    assert (unjudged.lowest_step < 5).all()


def test_a_model_that_reads_the_last_iterate_takes_n_evaluations():
    model = rd.create_model("mdeq-nano", readout="last").double().eval()
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    result = model.run(x, max_steps=3)
    assert result.state.solution.evaluations == 3
    assert_close(result.state.z, model.trajectory(x).states[2], rtol=0, atol=1e-12)
    assert model.run(x, max_steps=3, gradient=rd.SharedInverse()).state.solution.evaluations == 4
