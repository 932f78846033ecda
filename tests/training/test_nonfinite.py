"""A loss or a gradient that is not finite never reaches the weights that are kept."""

import math

import pytest
import torch

import robustdeq as rd
from robustdeq.training.logs import read_log
from robustdeq.training.objectives import TRADES
from robustdeq.training.trainer import NonFiniteLossError, Trainer
from tests.training.runs import assert_same_tensors, resnet_config, stored_step


@pytest.fixture
def poison(monkeypatch):
    """Make the loss of one step NaN, or its gradient alone."""

    def at(step, what="loss"):
        original = TRADES.losses

        def poisoned(self, model, x, y, attacked, draws, *rest):
            losses = original(self, model, x, y, attacked, draws, *rest)
            if draws.step != step:
                return losses
            if what == "loss":
                return losses._replace(total=losses.total * math.nan)
            losses.total.register_hook(lambda gradient: gradient * math.nan)
            return losses

        monkeypatch.setattr(TRADES, "losses", poisoned)

    return at


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_training_stops_with_the_step_and_the_last_good_checkpoint(tmp_path, poison, what):
    poison(3, what)
    trainer = Trainer(resnet_config(), tmp_path, device="cpu")
    with pytest.raises(NonFiniteLossError) as error:
        trainer.fit()
    assert "step 4" in str(error.value)
    assert f"the {what} is" in str(error.value)
    assert f"the last good checkpoint is step 2 in {tmp_path}" in str(error.value)
    assert stored_step(tmp_path) == 2
    assert all(p.isfinite().all() for p in rd.load(tmp_path / "last").parameters())


def test_training_stops_with_a_message_if_there_is_no_checkpoint_yet(tmp_path, poison):
    poison(1)
    with pytest.raises(NonFiniteLossError, match="no checkpoint yet"):
        Trainer(resnet_config({"on_nonfinite": "rollback"}), tmp_path, device="cpu").fit()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_training_rolls_back_to_the_last_checkpoint_and_skips_the_batch_if_asked(tmp_path, poison, what):
    poison(2, what)
    trainer = Trainer(resnet_config({"on_nonfinite": "rollback", "schedule": {"max_steps": 3}}), tmp_path, device="cpu")
    checkpoint = {}

    def remember(report):
        if report.step == 3:
            checkpoint.update({k: v.clone() for k, v in trainer.model.state_dict().items()})

    trainer.report = remember
    trainer.fit()
    assert [row["phase"] for row in read_log(tmp_path)] == ["pretrain", "train", "skipped"]
    two = Trainer(resnet_config({"schedule": {"max_steps": 2}}), tmp_path / "two", device="cpu")
    two.fit()
    assert_same_tensors(dict(two.model.state_dict()), checkpoint)  # the weights of the checkpoint at step 2


def test_a_learning_rate_that_explodes_stops_the_run(tmp_path):
    with pytest.raises(NonFiniteLossError, match=r"schedule\.lr"):
        Trainer(
            resnet_config({"schedule": {"lr": 1e30, "max_steps": 20}, "objective": {"kind": "pgdat"}}),
            tmp_path,
            device="cpu",
        ).fit()
    saved = tmp_path / "state.pt"
    assert not saved.exists() or all(v.isfinite().all() for v in torch.load(saved, weights_only=True)["model"].values())


def test_a_run_that_only_skips_is_given_up(tmp_path, monkeypatch):
    original = TRADES.losses

    def poisoned(self, model, x, y, attacked, draws, *rest):
        losses = original(self, model, x, y, attacked, draws, *rest)
        return losses._replace(total=losses.total * math.nan) if draws.step >= 2 else losses

    monkeypatch.setattr(TRADES, "losses", poisoned)
    trainer = Trainer(
        resnet_config({"on_nonfinite": "rollback", "schedule": {"max_steps": 20, "epochs": 50}}), tmp_path, device="cpu"
    )
    with pytest.raises(NonFiniteLossError, match="after 10 batches skipped"):
        trainer.fit()
