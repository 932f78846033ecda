"""What a trainer does with its share of the work: batches, augmentation, validation, statistics."""

from types import SimpleNamespace

import pytest
import torch

from robustdeq.data import batch_at
from robustdeq.training.draws import Draws
from robustdeq.training.trainer import Trainer
from tests.training.runs import config

AUGMENTED = {"data": {"padding": 2, "flip": True}}


def as_rank(trainer, rank, world_size):
    """The trainer as one of several processes, as far as its share is concerned."""
    trainer.rank, trainer.world_size = rank, world_size
    return trainer


def batch(trainer, step=3):
    trainer.step = step
    return trainer._batch(Draws(trainer.config.seed, step, trainer.rank, trainer.world_size))


@pytest.fixture
def trainer(tmp_path):
    return Trainer(config(AUGMENTED), tmp_path, device="cpu")


def test_a_batch_is_augmented_by_the_step_s_own_draw(trainer):
    x, y = batch(trainer)
    indices = batch_at(len(trainer.train_images), 12, 3, seed=0)
    changes = trainer.augment.draw(12, Draws(0, 3).generator("augment"))
    pixels = trainer.train_images.pixels[indices]
    assert torch.equal(x, trainer.augment.apply(pixels, changes).float() / 255)
    assert torch.equal(y, trainer.train_images.labels[indices])
    assert not torch.equal(x, pixels.float() / 255)  # it does something
    assert torch.equal(x, batch(trainer)[0])
    assert not torch.equal(x, batch(trainer, step=4)[0])


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_shares_of_all_ranks_are_the_joint_batch(trainer, world_size):
    x, y = batch(trainer)
    shares = [batch(as_rank(trainer, rank, world_size)) for rank in range(world_size)]
    assert torch.equal(torch.cat([share[0] for share in shares]), x)
    assert torch.equal(torch.cat([share[1] for share in shares]), y)


def test_a_batch_that_cannot_be_shared_equally_is_refused(tmp_path, monkeypatch):
    fabric = SimpleNamespace(global_rank=0, world_size=5, device="cpu")
    monkeypatch.setattr("robustdeq.training.trainer.launch", lambda *_: fabric)
    with pytest.raises(ValueError, match=r"cannot be shared equally by 5 processes.*multiple of 5"):
        Trainer(config(), tmp_path)


def test_the_validations_of_all_ranks_add_up(trainer, monkeypatch):
    trainer._validate()
    seen = trainer.validation
    whole = tuple(share for share in (seen.clean, seen.pgd, seen.inner, seen.standard) if share is not None)
    sums = []
    monkeypatch.setattr(trainer, "_reduce", lambda value, how: sums.append(value) or value)
    for rank in range(3):
        as_rank(trainer, rank, 3)._validate()
    total = torch.stack(sums).sum(0)
    assert tuple((total / len(trainer.validation_images)).tolist()) == pytest.approx(whole, abs=1e-6)


def test_statistics_become_the_mean_of_all_ranks(trainer, monkeypatch):
    seen = []
    monkeypatch.setattr(trainer, "_reduce", lambda value, how: seen.append((value.clone(), how)) or value / 2)
    before = [b.clone() for b in trainer.model.buffers() if b.is_floating_point()]
    as_rank(trainer, 0, 2)._share_statistics()
    after = [b for b in trainer.model.buffers() if b.is_floating_point()]
    assert [how for _, how in seen] == ["mean"]
    assert all(torch.equal(a, b / 2) for a, b in zip(after, before, strict=True))
    counts = [b for b in trainer.model.buffers() if not b.is_floating_point()]
    assert all(b == 0 for b in counts)
