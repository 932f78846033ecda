"""The order of the images."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustdeq.data import batch_at, epoch_batches, steps_per_epoch


def test_an_epoch_visits_every_image_once():
    batches = list(epoch_batches(23, 5, seed=0, epoch=0, drop_last=False))
    assert [len(b) for b in batches] == [5, 5, 5, 5, 3]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(23))


def test_drop_last_leaves_out_only_the_unfilled_batch():
    kept, all_ = (list(epoch_batches(23, 5, seed=0, epoch=0, drop_last=d)) for d in (True, False))
    assert len(kept) == steps_per_epoch(23, 5) == 4
    assert len(all_) == steps_per_epoch(23, 5, drop_last=False) == 5
    assert torch.equal(torch.stack(kept), torch.stack(all_[:4]))


def order(seed, epoch):
    return torch.cat(list(epoch_batches(500, 10, seed=seed, epoch=epoch)))


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    torch.manual_seed(1)
    first = order(3, 7)
    torch.manual_seed(2)
    assert torch.equal(order(3, 7), first)


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = {tuple(order(seed, epoch).tolist()) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert tuple(range(500)) not in orders


@given(
    n=st.integers(1, 60),
    share=st.integers(1, 6),
    world_size=st.integers(1, 4),
    epoch=st.integers(0, 3),
    drop_last=st.booleans(),
)
def test_the_shares_of_the_ranks_joined_are_the_batch_of_one_process(n, share, world_size, epoch, drop_last):
    batch_size = share * world_size
    if drop_last and n < batch_size:
        return
    kwargs = {"seed": 1, "epoch": epoch, "drop_last": drop_last}
    alone = list(epoch_batches(n, batch_size, **kwargs))
    ranks = [list(epoch_batches(n, batch_size, rank=r, world_size=world_size, **kwargs)) for r in range(world_size)]
    for i, batch in enumerate(alone):
        assert torch.equal(torch.cat([shares[i] for shares in ranks]), batch)
        sizes = [len(shares[i]) for shares in ranks]
        assert max(sizes) - min(sizes) <= (0 if len(batch) == batch_size else 1)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (1, 2)])
def test_batch_at_a_step_is_what_iterating_gives(drop_last, rank, world_size):
    kwargs = {"seed": 5, "rank": rank, "world_size": world_size, "drop_last": drop_last}
    iterated = [b for epoch in range(3) for b in epoch_batches(23, 4, epoch=epoch, **kwargs)]
    assert len(iterated) == 3 * steps_per_epoch(23, 4, drop_last=drop_last)
    for step in [*range(len(iterated)), 0, len(iterated) - 1]:  # and back again
        assert torch.equal(batch_at(23, 4, step, **kwargs), iterated[step])


def test_batch_at_does_not_shuffle_again_at_every_step(monkeypatch):
    calls = []
    randperm = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: calls.append(a) or randperm(*a, **k))
    for step in range(20):
        batch_at(1009, 50, step, seed=1234)
    assert len(calls) == 1


def test_changing_a_batch_does_not_change_the_next_run():
    before = batch_at(20, 4, 2, seed=0).clone()
    batch_at(20, 4, 2, seed=0).zero_()
    assert torch.equal(batch_at(20, 4, 2, seed=0), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 6, "world_size": 4}, "cannot be shared equally by 4 processes.*multiple of 4"),
        ({"rank": 2, "world_size": 2}, r"rank must lie in 0\.\.1 with world_size=2, got 2"),
        ({"rank": -1}, "rank must lie in"),
        ({"n": 3}, "3 images do not fill one batch of 4: use a smaller batch_size"),
        ({"n": 0}, "must be positive"),
        ({"batch_size": 0}, "must be positive"),
        ({"seed": -1}, "must be >= 0"),
    ],
)
def test_impossible_requests_are_refused_at_once(change, message):
    request = {"n": 20, "batch_size": 4, "seed": 0, "rank": 0, "world_size": 1, **change}
    n, batch_size = request.pop("n"), request.pop("batch_size")
    with pytest.raises(ValueError, match=message):
        epoch_batches(n, batch_size, epoch=0, **request)
    with pytest.raises(ValueError, match=message):
        batch_at(n, batch_size, 0, **request)


def test_negative_steps_and_epochs_are_refused():
    with pytest.raises(ValueError, match="must be >= 0"):
        epoch_batches(20, 4, seed=0, epoch=-1)
    with pytest.raises(ValueError, match="must be >= 0"):
        batch_at(20, 4, -1, seed=0)
