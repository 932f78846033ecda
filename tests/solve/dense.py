"""Broyden's method as the textbooks have it: one full matrix per sample."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_broyden(f, z0: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Iterates (N, B, D) and inverse estimates after each step (N, B, D, D), each sample in its own loop."""
    trajectories, inverses = [], []
    for b in range(len(z0)):
        z, B = z0[b], -torch.eye(z0.shape[1], dtype=z0.dtype)
        g = f[[b]](z[None])[0] - z
        zs, Bs = [], []
        for _ in range(steps):
            dz = -B @ g
            z = z + dz
            new = f[[b]](z[None])[0] - z
            dg, g = new - g, new
            v = dz @ B
            B = B + torch.outer(dz - B @ dg, v) / (v @ dg)
            zs.append(z)
            Bs.append(B)
        trajectories.append(torch.stack(zs))
        inverses.append(torch.stack(Bs))
    return torch.stack(trajectories, 1), torch.stack(inverses, 1)


def as_matrix(inverse) -> Tensor:
    """-I + sum_k s_k u_k v_k^T, (B, D, D)."""
    eye = torch.eye(inverse.u_buffer.shape[-1], dtype=inverse.u_buffer.dtype)
    return torch.einsum("bk,bki,bkj->bij", inverse.scale, inverse.u, inverse.v) - eye
