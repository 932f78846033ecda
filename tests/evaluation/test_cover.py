"""The smallest subset of attacks."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from robustdeq.evaluation import cover as module
from robustdeq.evaluation.cover import smallest_cover


def brute_force(broken):
    everything = broken.any(axis=1)
    for size in range(broken.shape[1] + 1):
        for columns in combinations(range(broken.shape[1]), size):
            if (broken[:, list(columns)].any(axis=1) == everything).all():
                return size
    raise AssertionError


@settings(deadline=None, max_examples=150)
@given(arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 7))))
def test_it_is_the_smallest(broken):
    found = smallest_cover(broken)
    assert found.proven
    assert (broken[:, found.columns].any(axis=1) == broken.any(axis=1)).all()
    assert len(found.columns) == brute_force(broken)


def test_greedy_is_beaten_where_it_is_wrong():
    left, right = [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]
    tempting = [0, 1, 1, 1, 1, 0]  # greedy takes it first, and then needs two more
    broken = np.array([tempting, left, right], dtype=bool).T
    assert smallest_cover(broken).columns == [1, 2]


def test_a_search_that_gives_up_says_so_and_still_covers(monkeypatch):
    monkeypatch.setattr(module, "NODES", 1)
    broken = np.random.default_rng(0).random((200, 40)) < 0.1
    found = smallest_cover(broken)
    assert not found.proven
    assert (broken[:, found.columns].any(axis=1) == broken.any(axis=1)).all()
