"""Several processes do what one does."""

import pytest
import torch
from torch.testing import assert_close

from tests.training.joint_gradients import OBJECTIVES, STEPS
from tests.training.runs import finish, start

pytestmark = pytest.mark.long

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m")


def test_two_processes_give_the_gradients_of_one_on_the_joint_batch(tmp_path):
    finish(start(["tests.training.joint_gradients", tmp_path / "one.pt"], program=("-m",)))
    finish(start(["tests.training.joint_gradients", tmp_path / "two.pt"], program=TORCHRUN))
    one, two = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("one", "two"))
    assert (one["world_size"], two["world_size"]) == (1, 2)
    assert one["found"].keys() == two["found"].keys()
    assert len(one["found"]) == len(OBJECTIVES) * len(STEPS)
    for name, (loss, gradients) in one["found"].items():
        other_loss, other = two["found"][name]
        assert_close(other_loss, loss, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
        assert max(g.abs().max() for g in gradients) > 1e-3
        for a, b in zip(gradients, other, strict=True):
            assert_close(b, a, rtol=0, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
