"""The autograd graph of a training forward does not grow with the solver's steps."""

import pytest
import torch

import robustdeq as rd


def saved_for_backward(model, x, max_steps):
    """(number of saved tensors, bytes of their unique storages) of a training forward."""
    saved = []

    def pack(tensor):
        saved.append(tensor)  # kept alive, so that no two storages share an address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model.run(x, max_steps=max_steps, generator=torch.Generator().manual_seed(0)).logits
    assert logits.requires_grad
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    return len(saved), sum(storages.values())


@pytest.fixture
def model(make_mdeq):
    return make_mdeq(dropout=0.2, tol=0.0).train()


@pytest.mark.parametrize("solver", [rd.Broyden(), rd.Anderson(), rd.Picard()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("gradient", [rd.Phantom(), rd.OneStep(), rd.Neumann()], ids=lambda g: type(g).__name__)
def test_saved_tensors_do_not_grow_with_the_steps(model, x, solver, gradient):
    model.solver, model.gradient = solver, gradient
    counts = {steps: saved_for_backward(model, x, steps) for steps in (2, 8, 16)}
    assert counts[2][0] > 0
    assert counts[2] == counts[8] == counts[16]


def test_saved_tensors_grow_with_the_steps_when_the_solver_is_differentiated(model, x):
    """The control: the measure sees a graph that grows."""
    model.gradient = rd.ThroughSolver()
    (few, small), (more, large) = (saved_for_backward(model, x, steps) for steps in (2, 8))
    assert more > 2 * few
    assert large > 2 * small


def test_the_trajectory_is_kept_only_with_record(model, x):
    assert model.run(x).state.solution.trajectory is None
    assert model.run(x, record=True).state.solution.trajectory.shape[0] == 8
