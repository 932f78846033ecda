"""Multiplied weights: a residual that is not monotone, and a solve that converges early."""

from dataclasses import replace

import torch
import torch.nn.functional as F

import robustdeq as rd

from .cases import Digest
from .comparison import compares
from .solves import of_batch, undefended

VARIANTS = ("nonmono_", "early_")


def stored_rows(rows, steps):
    """The first `steps` rows; ours always has all N, and the rest must repeat the last of these."""
    assert rows[steps:].eq(rows[steps - 1]).all()
    return rows[:steps]


@compares(
    "stress",
    *("states_*", "logits", "entropy", "res_abs", "res_rel", "lowest_step", "n_steps"),
    tol=1e-7,
    prefixes=VARIANTS,
)
def test_batch_coupled_solve_is_the_released_one_and_repeats_its_last_state(case, prefix):
    variant = prefix.strip("_")
    solve = undefended(case.model(variant), case.x)
    solution = solve.solution
    steps = int(of_batch(solution.steps))
    expected = rd.Status.CONVERGED if variant == "early" else rd.Status.STEP_LIMIT
    assert solution.status.tolist() == [expected] * len(case.y)
    assert len(solution.residuals) == 8
    return {
        "states": Digest(stored_rows(solve.states.vector, steps), solve.states.segments),
        "logits": torch.cat([stored_rows(solve.logits[:-1], steps), solve.logits[-1:]]),
        "entropy": torch.cat([stored_rows(solve.entropy[:-1], steps), solve.entropy[-1:]]),
        "res_abs": stored_rows(of_batch(solution.residual_norms), steps),
        "res_rel": stored_rows(of_batch(solution.residuals), steps),
        "lowest_step": of_batch(solution.lowest_step),
        "n_steps": of_batch(solution.steps),
    }


@compares("stress", "single_*", tol=1e-7, prefixes=VARIANTS)
def test_per_sample_solve_of_a_batch_is_the_released_solve_of_each_image_alone(case, prefix):
    model = case.model(prefix.strip("_"))
    model.solver = replace(model.solver, batch_coupled=False)
    solve = undefended(model, case.x)
    solution = solve.solution
    frozen = torch.arange(1, 9)[:, None] > solution.steps
    for rows in (solution.residuals, solution.residual_norms, solve.states.vector):
        for i, steps in enumerate(solution.steps.tolist()):
            stored_rows(rows[:, i], steps)
    return {
        "single_res_abs": solution.residual_norms.masked_fill(frozen, torch.nan).T,
        "single_res_rel": solution.residuals.masked_fill(frozen, torch.nan).T,
        "single_lowest_step": solution.lowest_step,
        "single_n_steps": solution.steps,
        "single_final9_logits": solve.logits[-1],
    }


@compares("stress", "readymade_*", tol=1e-7, prefixes=VARIANTS)
def test_readymade_gradient_is_the_released_one(case, prefix):
    x = case.x.requires_grad_()
    logits = case.model(prefix.strip("_"))(x)
    ce = F.cross_entropy(logits, case.y)
    (grad,) = torch.autograd.grad(ce, x)
    return {"readymade_logits": logits, "readymade_ce": ce, "readymade_grad": Digest.of_image(grad)}


@compares("stress", "implicit_*", tol=1e-7, prefixes=VARIANTS)
def test_implicit_gradient_and_its_backward_solve_are_the_released_ones(case, prefix):
    backward: list[rd.Solution] = []
    model = case.model(prefix.strip("_"))
    model.gradient = rd.Implicit(on_solution=backward.append)
    x = case.x.requires_grad_()
    logits = model(x)
    ce = F.cross_entropy(logits, case.y)
    (grad,) = torch.autograd.grad(ce, x)
    (solution,) = backward
    steps = int(of_batch(solution.steps))
    return {
        "implicit_logits": logits,
        "implicit_ce": ce,
        "implicit_grad": Digest.of_image(grad),
        "implicit_bwd_res_rel": stored_rows(of_batch(solution.residuals), steps),
        "implicit_bwd_lowest_step": of_batch(solution.lowest_step),
    }
