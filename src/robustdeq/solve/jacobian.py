"""The Jacobian of f at a state: the training penalty and the spectral radius."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from robustdeq.solve.solver import Map, row_norms


def jacobian_penalty(
    f: Map,
    z: Float[Tensor, " B *latent"],
    *,
    probes: int | Float[Tensor, "P B *latent"] = 2,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """Mean over Gaussian probes v of ||v^T J||^2 / numel(z), J = df/dz at z; differentiable in what f depends on.

    Args:
        f: The map z -> f(z).
        z: The state, taken as a constant.
        probes: The number of probes to draw, or the probes themselves.
        generator: Source of the random draws.
    """
    if isinstance(probes, int) and probes < 1:
        raise ValueError(f"probes must be at least 1, got {probes}")
    with torch.inference_mode(False), torch.enable_grad():
        z = z.detach().clone().requires_grad_()
        if isinstance(probes, int):
            probes = torch.randn(probes, *z.shape, dtype=z.dtype, device=z.device, generator=generator)
        y = f(z)
        total = torch.zeros((), dtype=z.dtype, device=z.device)
        for v in probes:
            total = total + torch.autograd.grad(y, z, v, create_graph=True)[0].square().sum()
    return total / (len(probes) * z.numel())


def spectral_radius(
    f: Map, z: Float[Tensor, " B *latent"], *, iterations: int = 50, generator: torch.Generator | None = None
) -> Float[Tensor, " B"]:
    """|largest eigenvalue| of J = df/dz at each sample's z, by power iteration on J^T.

    The estimate is the mean growth rate over the second half of the iterations, which also settles when the dominant
    eigenvalues are a complex pair and the iterate never does. Below 1, plain iteration converges near z.
    """
    if iterations < 2:
        raise ValueError(f"iterations must be at least 2, got {iterations}")
    v = torch.randn(z.shape, dtype=z.dtype, device=z.device, generator=generator)
    growth = []
    with torch.inference_mode(False), torch.enable_grad():
        z = z.detach().clone().requires_grad_()
        y = f(z)
        for _ in range(iterations):
            v = v / row_norms(v)
            v = torch.autograd.grad(y, z, v, retain_graph=True)[0]
            growth.append(row_norms(v).flatten())
    return torch.stack(growth[iterations // 2 :]).log().mean(0).exp()
