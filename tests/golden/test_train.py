"""What training computes: phantom logits, 8-layer mode, TRADES, the Jacobian penalty, a train-mode pass."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import robustdeq as rd
from robustdeq.models.compat import rename

from .cases import CASES
from .comparison import compares


def training_model(case):
    model = case.model()
    model.gradient = rd.Phantom(5, 0.5)
    return model


def released_names(case):
    return [str(name) for name in case.given("train", "param_names")]


def gradient_norms(case, model, loss):
    """Norm of d loss / d parameter in the released order; 0 where the loss does not depend on it."""
    parameters = dict(model.named_parameters())
    ordered = [parameters[rename(name)] for name in released_names(case)]
    grads = torch.autograd.grad(loss, ordered, allow_unused=True, materialize_grads=True)
    return torch.stack([grad.norm() for grad in grads])


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_gradient_norms_are_of_all_parameters(case):
    parameters = {name for name, _ in case.model().named_parameters()}
    assert sorted(map(rename, released_names(case))) == sorted(parameters)


@compares("train", "phantom5_logits")
def test_phantom_logits_are_the_released_ones(case):
    return {"phantom5_logits": training_model(case)(case.x)}


@compares("train", "phantom5_single_logits")
def test_per_sample_phantom_logits_are_those_of_each_image_alone(case):
    model = training_model(case)
    model.solver = replace(model.solver, batch_coupled=False)
    return {"phantom5_single_logits": model(case.x)}


@compares("train", "phantom5_logits_by_depth")
def test_phantom_logits_of_every_solver_depth_are_the_released_ones(case):
    model = training_model(case)
    with torch.no_grad():
        logits = [model.run(case.x, max_steps=t).logits for t in range(1, 9)]
    return {"phantom5_logits_by_depth": torch.stack(logits)}


@compares("train", "pretrain8_logits")
def test_truncated_logits_are_those_of_the_8_layer_mode(case):
    return {"pretrain8_logits": case.model().truncated(case.x)}


@compares("train", "trades_*")
def test_trades_losses_and_parameter_gradients_are_the_released_ones(case):
    model = training_model(case)
    clean, adv = model(case.x), model(case.x_adv)
    ce = F.cross_entropy(clean, case.y)
    kl = F.kl_div(adv.log_softmax(1), clean.log_softmax(1), reduction="sum", log_target=True)
    total = ce + 6 * kl / len(case.y)
    return {
        "trades_logits_clean": clean,
        "trades_logits_adv": adv,
        "trades_ce": ce,
        "trades_kl_sum": kl,
        "trades_total": total,
        "trades_param_grad_norm": gradient_norms(case, model, total),
    }


@compares("train", "jac_loss", "jac_loss_per_probe", "jac_param_grad_norm")
def test_jacobian_penalty_and_its_parameter_gradients_are_the_released_ones(case):
    model = training_model(case)
    probes = case.tensor("train", "jac_probe_int8").double() / case.tensor("train", "jac_probe_scale")
    f, z0 = model.begin(case.x)
    with torch.no_grad():
        z = model.solve(f, z0).value
    penalty = rd.jacobian_penalty(f, z, probes=probes)
    return {
        "jac_loss": penalty,
        "jac_loss_per_probe": torch.stack([rd.jacobian_penalty(f, z, probes=v[None]) for v in probes]),
        "jac_param_grad_norm": gradient_norms(case, model, penalty),
    }


@compares("train", "trainmode_logits", "trainmode_ce", "trainmode_param_grad_norm", "trainmode_bn_after/*")
def test_train_mode_pass_with_given_dropout_masks_is_the_released_one(case):
    model = training_model(case).train()
    masks = [case.tensor("train", f"trainmode_mask_branch{i}") for i in range(len(model.dynamics.channels))]
    u = model.encoder(case.x)
    f = model.dynamics.bind(u, masks=masks)
    with torch.no_grad():
        solution = model.solve(f, model.dynamics.initial(u))
    y = model.gradient.connect(f, model.read(solution))
    logits = model.head(f.unpack(y))
    ce = F.cross_entropy(logits, case.y)
    state = model.state_dict()
    statistics = [name for name in case.weights() if name.endswith(("running_mean", "running_var"))]
    return {
        "trainmode_logits": logits,
        "trainmode_ce": ce,
        "trainmode_param_grad_norm": gradient_norms(case, model, ce),
        **{f"trainmode_bn_after/{name}": state[rename(name)] for name in statistics},
    }
