"""Which images are in which batch."""

import pytest
import torch

from robustdeq.data import batch_at, steps_per_epoch


def epoch_batches(n, batch_size, epoch, **options):
    steps = steps_per_epoch(n, batch_size)
    return [batch_at(n, batch_size, step, **options) for step in range(epoch * steps, (epoch + 1) * steps)]


def test_an_epoch_visits_every_image_once_but_those_that_do_not_fill_a_batch():
    for epoch in range(3):
        batches = epoch_batches(23, 5, epoch, seed=0)
        assert [len(batch) for batch in batches] == [5, 5, 5, 5]
        assert len(set(torch.cat(batches).tolist())) == 20
    assert torch.equal(torch.cat(epoch_batches(20, 5, 0, seed=0)).sort().values, torch.arange(20))


def order(seed, epoch):
    return torch.cat(epoch_batches(500, 10, epoch, seed=seed))


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    torch.manual_seed(1)
    first = order(3, 7)
    torch.manual_seed(2)
    assert torch.equal(order(3, 7), first)


def test_every_seed_and_epoch_has_its_own_order():
    orders = {tuple(order(seed, epoch).tolist()) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert tuple(range(500)) not in orders


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
        ({"n": 3}, "3 images do not fill one batch of 4: give a smaller --schedule.batch_size"),
        ({"n": 0}, "must be positive"),
        ({"batch_size": 0}, "must be positive"),
        ({"seed": -1}, "must be >= 0"),
    ],
)
def test_impossible_requests_are_refused_at_once(change, message):
    request = {"n": 20, "batch_size": 4, "seed": 0, **change}
    n, batch_size = request.pop("n"), request.pop("batch_size")
    with pytest.raises(ValueError, match=message):
        batch_at(n, batch_size, 0, **request)


def test_negative_steps_are_refused():
    with pytest.raises(ValueError, match="must be >= 0"):
        batch_at(20, 4, -1, seed=0)
