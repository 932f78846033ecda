"""The input gradients an attacker may use, and the undefended solve on attacked images."""

import re

import numpy as np
import torch
import torch.nn.functional as F

import robustdeq as rd

from .cases import Digest
from .comparison import compares
from .solves import of_batch, undefended


def implicit(model):
    """The model with the implicit gradient, and where its backward solve will be."""
    backward: list[rd.Solution] = []
    model.gradient = rd.Implicit(on_solution=backward.append)
    return model, backward


def unrolled_state(name):
    """(i, K, lam) of a name such as i3_K5_lam05, or None."""
    match = re.fullmatch(r"i(\d)_K(\d)_lam(05|1)", name)
    return match and (int(match[1]), int(match[2]), {"05": 0.5, "1": 1.0}[match[3]])


def logits_by(name, case, x):
    """Logits whose gradient in x is the named one."""
    model = case.model()
    if name == "readymade_1p9":
        return rd.oracles.Estimate(model, gradient=rd.Phantom(9, 0.5))(x)
    if name == "exact_implicit":
        return rd.oracles.Estimate(model, gradient=rd.Implicit())(x)
    i, steps, damping = unrolled_state(name)
    return rd.UnrolledState(model, state=i, steps=steps, damping=damping, form="released")(x)


def grad_names(case):
    return [str(name) for name in case.given("attack", "grad_names")]


@compares("attack", "grad_reference_AttackGrad")
def test_released_names_of_the_gradients_count_states_from_zero(case):
    def released(name):
        if settings := unrolled_state(name):
            i, steps, damping = settings
            return f"{'M' if damping == 0.5 else 'F'}unroll-{i - 1}-{steps}"
        return {"readymade_1p9": "unroll", "exact_implicit": "real"}[name]

    return {"grad_reference_AttackGrad": np.array([released(name) for name in grad_names(case)])}


@compares(
    "attack",
    *("grad_norm", "grad_proj", "grad_sub", "grad_l1", "grad_full", "grad_logits", "grad_ce", "grad_ce_per_image"),
)
def test_input_gradients_are_the_released_ones(case):
    grads, logits = [], []
    for name in grad_names(case):
        x = case.x.requires_grad_()
        logits.append(logits_by(name, case, x))
        grads += torch.autograd.grad(F.cross_entropy(logits[-1], case.y), x)
    grad = torch.stack(grads)
    per_image = torch.stack([F.cross_entropy(row, case.y, reduction="none") for row in logits])
    return {
        "grad": Digest.of_image(grad),
        "grad_l1": grad.abs().sum((2, 3, 4)),
        "grad_full": grad[:, :2],
        "grad_logits": torch.stack(logits),
        "grad_ce": per_image.mean(1),
        "grad_ce_per_image": per_image,
    }


@compares("attack", "implicit_bwd_*")
def test_backward_solve_of_the_implicit_gradient_is_the_released_one(case):
    model, backward = implicit(case.model())
    x = case.x.requires_grad_()
    forward = model.run(x)
    torch.autograd.grad(F.cross_entropy(forward.logits, case.y), x)
    (solution,) = backward
    return {
        "implicit_bwd_res_abs": of_batch(solution.residual_norms),
        "implicit_bwd_res_rel": of_batch(solution.residuals),
        "implicit_bwd_lowest_step": of_batch(solution.lowest_step),
        "implicit_bwd_u": Digest.of_state(solution.value, forward.f),
    }


@compares("attack", "*", prefixes=("adv_undef_",))
def test_batch_coupled_solve_on_attacked_images_is_the_released_one(case, prefix):
    solve = undefended(case.model(), case.x_adv)
    return {
        "states": solve.states,
        "final9": solve.final9,
        "logits": solve.logits,
        "entropy": solve.entropy,
        "res_abs": of_batch(solve.solution.residual_norms),
        "res_rel": of_batch(solve.solution.residuals),
        "lowest_step": of_batch(solve.solution.lowest_step),
    }
