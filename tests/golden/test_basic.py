"""Injection, f and the undefended solve."""

from dataclasses import replace

import numpy as np
import torch

from .cases import Digest
from .comparison import compares
from .solves import of_batch, undefended


@compares("basic", "cutoffs")
def test_scales_have_the_released_shapes(case):
    f, _ = case.model().begin(case.x)
    return {"cutoffs": np.array([m.shape[1:] for m in f.unpack(torch.zeros(1, sum(map(np.prod, f.shapes))))])}


@compares("basic", "injection_*")
def test_injection_is_the_released_one(case):
    u = case.model().encoder(case.x)
    return {"injection": Digest(u.flatten(1), [u[0].numel()]), "injection_image0": u[0]}


@compares("basic", "f_of_z_rand_*")
def test_f_of_a_random_state_is_the_released_one(case):
    z = case.tensor("basic", "z_rand_int8").double() / case.tensor("basic", "z_rand_scale")
    f, _ = case.model().begin(case.x)
    return {"f_of_z_rand": Digest.of_state(f(z), f), "f_of_z_rand_image0": f(z)[0]}


@compares(
    "basic",
    *("states_norm", "states_proj", "states_sub", "final9_*", "logits", "entropy", "res_abs", "res_rel", "lowest_step"),
    prefixes=("undef_",),
)
def test_batch_coupled_solve_is_the_released_one(case, prefix):
    solve = undefended(case.model(), case.x)
    return {
        "states": solve.states,
        "final9": solve.final9,
        "logits": solve.logits,
        "entropy": solve.entropy,
        "res_abs": of_batch(solve.solution.residual_norms),
        "res_rel": of_batch(solve.solution.residuals),
        "lowest_step": of_batch(solve.solution.lowest_step),
    }


@compares("basic", "undef_states_image0")
def test_states_of_one_image_are_the_released_ones_entry_by_entry(case):
    t = case.tensor("basic", "undef_states_image0_t")
    return {"undef_states_image0": case.model().trajectory(case.x).states[t - 1, 0]}


@compares("basic", "undef_states_full", cases=("B",))
def test_states_of_all_images_are_the_released_ones_entry_by_entry(case):
    return {"undef_states_full": case.model().trajectory(case.x).states}


@compares("basic", "single_res_*", "single_lowest_step", "single_logits")
def test_per_sample_solve_of_a_batch_is_the_released_solve_of_each_image_alone(case):
    model = case.model()
    model.solver = replace(model.solver, batch_coupled=False)
    solve = undefended(model, case.x)
    return {
        "single_res_abs": solve.solution.residual_norms.T,
        "single_res_rel": solve.solution.residuals.T,
        "single_lowest_step": solve.solution.lowest_step,
        "single_logits": solve.logits,
    }


@compares("basic", "single_vs_batch_state_maxabs", atol=1e-10)
def test_iterates_are_batch_independent_up_to_rounding(case):
    model = case.model()
    model.solver = replace(model.solver, batch_coupled=False)
    with torch.no_grad():
        together = model.walk(case.x).solution.trajectory
        alone = torch.cat([model.walk(image[None]).solution.trajectory for image in case.x], 1)
    return {"single_vs_batch_state_maxabs": (together - alone).abs().max()}
