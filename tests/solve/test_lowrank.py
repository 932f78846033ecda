"""The low-rank inverse against the dense matrix that it represents."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq.solve import LowRankInverse
from tests.problems import generator
from tests.solve.dense import as_matrix

BATCH, DIM = 3, 5


def factors(count, seed=0):
    u, v = torch.randn(2, count, BATCH, DIM, dtype=torch.float64, generator=generator(seed))
    return u, v, torch.randn(count, BATCH, dtype=torch.float64, generator=generator(seed + 1))


def built(count, capacity):
    inverse = LowRankInverse.identity(torch.zeros(BATCH, DIM, dtype=torch.float64), capacity)
    history = [inverse]
    for u, v, s in zip(*factors(count), strict=True):
        inverse = inverse.append(u, v, s)
        history.append(inverse)
    return history


@pytest.fixture
def x():
    return torch.randn(BATCH, DIM, dtype=torch.float64, generator=generator(5))


@pytest.mark.parametrize("capacity", [1, 8, 20])
def test_products_equal_those_of_the_dense_matrix(x, capacity):
    u, v, s = factors(20)
    for rank, inverse in enumerate(built(20, capacity)):
        matrix = torch.einsum("kb,kbi,kbj->bij", s[:rank], u[:rank], v[:rank]) - torch.eye(DIM, dtype=torch.float64)
        assert inverse.rank == rank
        assert_close(as_matrix(inverse), matrix)
        assert_close(inverse.apply(x), (matrix @ x[..., None])[..., 0])
        assert_close(inverse.apply_transposed(x), (matrix.mT @ x[..., None])[..., 0])


def test_without_factors_it_is_minus_the_identity(x):
    inverse = built(0, 8)[0]
    assert torch.equal(inverse.apply(x), -x)
    assert torch.equal(inverse.apply_transposed(x), -x)


def test_each_sample_can_be_limited_to_its_own_first_factors(x):
    history = built(6, 8)
    limited = history[-1].apply_transposed(x, torch.tensor([0, 2, 6]))
    for i, rank in enumerate((0, 2, 6)):
        assert_close(limited[i], history[rank].apply_transposed(x)[i])


@pytest.mark.parametrize("which", ["u", "v", "both"])
def test_a_non_finite_factor_beyond_a_samples_limit_does_not_count(x, which):
    inverse = built(2, 8)[-1]
    bad = torch.full((BATCH, DIM), torch.nan, dtype=torch.float64)
    good = torch.ones_like(bad)
    grown = inverse.append(
        bad if which != "v" else good, bad if which != "u" else good, torch.ones(BATCH, dtype=torch.float64)
    )
    limited = grown.apply_transposed(x, torch.full((BATCH,), 2))
    assert_close(limited, inverse.apply_transposed(x))


def test_older_objects_stay_valid_while_rows_are_added(x):
    inverse = built(3, 8)[-1]
    before = inverse.apply(x)
    for u, v, s in zip(*factors(12, seed=40), strict=True):
        inverse.append(u, v, s)
        assert torch.equal(inverse.apply(x), before)


def test_appending_again_replaces_the_first_factor_appended(x):
    u, v, s = factors(2, seed=40)
    inverse = built(3, 8)[-1]
    inverse.append(u[0], v[0], s[0])
    again = inverse.append(u[1], v[1], s[1])
    fresh = built(3, 8)[-1].append(u[1], v[1], s[1])
    assert again.rank == 4
    assert torch.equal(again.apply(x), fresh.apply(x))


def test_factors_with_a_graph_are_never_overwritten():
    inverse = built(1, 8)[-1]
    u, v, s = (t.requires_grad_() for t in factors(1, seed=40))
    grown = inverse.append(u[0], v[0], s[0]).append(u[0] * 2, v[0], s[0])
    total = grown.apply(torch.ones(BATCH, DIM, dtype=torch.float64)).sum()
    for gradient in torch.autograd.grad(total, (u, v, s)):
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0
