"""The Jacobian penalty and the spectral radius on maps whose Jacobian is known."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq import jacobian_penalty, spectral_radius
from tests.problems import Linear, TanhCell, generator
from tests.solve.policies import finite_differences


@pytest.fixture
def cell():
    return TanhCell.random(2, 4, 1.2)


@pytest.mark.parametrize("latent", [(6,), (2, 3, 1)], ids=["vector", "maps"])
def test_the_penalty_of_given_probes_is_its_formula(latent):
    problem = Linear.random(3, latent, 0.8)
    probes = torch.randn(5, 3, *latent, dtype=torch.float64, generator=generator(2))
    rows = torch.einsum("pbi,bij->pbj", probes.flatten(2), problem.A)
    expected = rows.square().sum() / (5 * problem.u.numel())
    assert_close(jacobian_penalty(problem, problem.z0, probes=probes), expected)


def test_unit_probes_give_the_frobenius_norm(cell):
    z = cell.u
    probes = torch.eye(4, dtype=torch.float64)[:, None].expand(4, 2, 4)
    expected = cell.jacobian(z).square().sum() / (4 * z.numel())
    assert_close(jacobian_penalty(cell, z, probes=probes), expected)


def test_drawn_probes_estimate_the_frobenius_norm_without_bias():
    problem = Linear.random(3, (6,), 0.8)
    expected = problem.A.square().sum() / problem.u.numel()
    assert_close(
        jacobian_penalty(problem, problem.z0, probes=3000, generator=generator(1)), expected, rtol=0.05, atol=0
    )


def test_draws_come_from_the_generator(cell):
    a, b, other = (jacobian_penalty(cell, cell.u, generator=generator(seed)) for seed in (3, 3, 4))
    assert a == b != other
    probes = torch.randn(2, *cell.u.shape, dtype=torch.float64, generator=generator(3))
    assert_close(a, jacobian_penalty(cell, cell.u, probes=probes))


def test_the_penalty_can_be_differentiated(cell):
    probes = torch.randn(2, 2, 4, dtype=torch.float64, generator=generator(2))
    z = torch.randn(2, 4, dtype=torch.float64, generator=generator(3))

    def penalty(W):
        return jacobian_penalty(TanhCell(cell.u, W), z, probes=probes)

    W = cell.W.clone().requires_grad_()
    (result,) = torch.autograd.grad(penalty(W), W)
    assert_close(result, finite_differences(penalty, cell.W), rtol=0, atol=1e-8)
    assert torch.autograd.gradcheck(penalty, W)


def test_the_state_is_a_constant_to_the_penalty(cell):
    z = cell.u.clone().requires_grad_()
    W = cell.W.clone().requires_grad_()
    jacobian_penalty(TanhCell(cell.u, W), z, generator=generator()).backward()
    assert z.grad is None
    assert W.grad.abs().sum() > 0


def test_the_penalty_has_its_value_under_no_grad(cell):
    expected = jacobian_penalty(cell, cell.u, generator=generator())
    with torch.no_grad():
        assert_close(jacobian_penalty(cell, cell.u, generator=generator()), expected)


def with_eigenvalues(*blocks, seed=0):
    """A matrix with the given eigenvalues (a complex number stands for it and its conjugate), not a normal one."""
    parts = [
        torch.tensor([[b.real, -b.imag], [b.imag, b.real]] if isinstance(b, complex) else [[b]], dtype=torch.float64)
        for b in blocks
    ]
    matrix = torch.block_diag(*parts)
    basis = torch.eye(len(matrix), dtype=torch.float64)
    basis = basis + 0.3 * torch.randn(matrix.shape, dtype=torch.float64, generator=generator(seed))
    return basis @ matrix @ torch.linalg.inv(basis)


def test_the_spectral_radius_is_each_samples_own():
    A = torch.stack(
        [
            with_eigenvalues(0.9, 0.5, 0.1, 0.0),
            with_eigenvalues(-1.7, 0.8, 0.2, 0.1),
            with_eigenvalues(0.6 + 0.8j, 0.3, 0.1),  # modulus 1
            with_eigenvalues(0.3 - 0.4j, 0.2, -0.1),  # modulus 0.5
        ]
    )
    problem = Linear(torch.zeros(4, 4, dtype=torch.float64), A)
    expected = torch.tensor([0.9, 1.7, 1.0, 0.5], dtype=torch.float64)
    assert_close(spectral_radius(problem, problem.z0, generator=generator()), expected, rtol=0.05, atol=0)
    longer = spectral_radius(problem, problem.z0, iterations=600, generator=generator())
    assert_close(longer, expected, rtol=0.005, atol=0)
    assert_close(longer[:2], expected[:2], rtol=1e-8, atol=0)


def test_the_spectral_radius_is_that_of_the_jacobian_at_z(cell):
    z = torch.randn(2, 4, dtype=torch.float64, generator=generator(3))
    expected = torch.linalg.eigvals(cell.jacobian(z)).abs().amax(1)
    assert_close(spectral_radius(cell, z, iterations=2000, generator=generator()), expected, rtol=0.01, atol=0)


def test_the_spectral_radius_of_a_map_of_any_latent_shape():
    problem = Linear(
        torch.zeros(2, 2, 3, 1, dtype=torch.float64), 0.7 * torch.eye(6, dtype=torch.float64).expand(2, 6, 6)
    )
    radius = spectral_radius(problem, problem.z0, generator=generator())
    assert_close(radius, torch.full((2,), 0.7, dtype=torch.float64))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_spectral_radius_needs_no_grad_mode(cell, mode):
    expected = spectral_radius(cell, cell.u, generator=generator())
    with mode():
        result = spectral_radius(cell, cell.u, generator=generator())
    assert not result.requires_grad
    assert_close(result, expected)


def test_too_few_iterations_are_an_error(cell):
    with pytest.raises(ValueError, match="iterations"):
        spectral_radius(cell, cell.u, iterations=1)


@pytest.mark.parametrize("probes", [0, -1])
def test_no_probes_are_an_error(cell, probes):
    with pytest.raises(ValueError, match="probe"):
        jacobian_penalty(cell, cell.u, probes=probes)
