"""Passes work in every grad mode and leave the model as they found it."""

import pytest
import torch

import robustdeq as rd


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "gradient", [rd.Phantom(), rd.OneStep(), rd.Implicit(), rd.Neumann(), rd.SharedInverse(), rd.ThroughSolver()]
)
def test_forward_works_without_grad_and_gives_the_same_logits(model, x, mode, gradient):
    model.gradient = gradient
    expected = model(x).detach()
    with mode():
        logits = model(x)
    assert not logits.requires_grad
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_trajectory_works_in_every_grad_mode(model, x, mode):
    expected = model.trajectory(x)
    with mode():
        trajectory = model.trajectory(x)
    assert not trajectory.states.requires_grad
    assert not trajectory.logits.requires_grad
    torch.testing.assert_close(trajectory.states, expected.states, rtol=0, atol=1e-10)


def test_trajectory_in_train_mode_is_the_deployed_one_and_changes_nothing(make_mdeq, x):
    model = make_mdeq(dropout=0.5)
    expected = model.trajectory(x)
    model.train()
    model.head.eval()  # modes need not be uniform
    model.encoder.stem[1].eval()
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)
    modes = {name: m.training for name, m in model.named_modules()}
    state = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.get_rng_state()
    trajectory = model.trajectory(x)
    torch.testing.assert_close(trajectory.states, expected.states, rtol=0, atol=0)
    torch.testing.assert_close(trajectory.logits, expected.logits, rtol=0, atol=0)
    assert {name: m.training for name, m in model.named_modules()} == modes
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all((p.grad == 3).all() for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), rng)


def test_trajectory_restores_modes_when_it_fails(model):
    model.train()
    with pytest.raises(ValueError, match="expected images"):
        model.trajectory(torch.zeros(2, 4, 8, 8, dtype=torch.float64))
    assert all(m.training for m in model.modules())


def test_an_eval_forward_changes_neither_grads_nor_statistics_nor_modes(model, x):
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    x.requires_grad_()
    (grad,) = torch.autograd.grad(model(x).sum(), x)
    assert grad.isfinite().all()
    assert grad.abs().max() > 0
    assert all((p.grad == 3).all() for p in model.parameters())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert not any(m.training for m in model.modules())
    assert x.grad is None


def test_a_training_forward_moves_batch_norm_statistics_once(model, x):
    """The control: the assertions above can fail."""
    before = model.head.final[1].running_mean.clone()
    tracked = model.head.final[1].num_batches_tracked.clone()
    model.train()(x)
    assert not torch.equal(model.head.final[1].running_mean, before)
    assert model.head.final[1].num_batches_tracked == tracked + 1
