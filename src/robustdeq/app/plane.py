"""Trajectories in the plane of their first two principal components, and what the head says there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Points = list[tuple[float, float]]
GRID = 32
"""Points of the plane, along each side, that the head is evaluated at."""
FINE = 128
"""Pixels along each side of the picture of the regions; logits between grid points are interpolated."""
MARGIN = 0.18


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Coordinates relative to the mean of all states."""

    paths: list[Points]
    """One for each pass."""
    low: tuple[float, float]
    high: tuple[float, float]
    share: float
    """Share of the states' variance that lies in the plane."""
    regions: list[list[int]]
    """The head's class at each pixel, the first row at the top."""


@torch.no_grad()
def plane_of(passes: Sequence[Tensor], head: Callable[[Tensor], Tensor]) -> Plane | None:
    """The plane through passes, each (N, ...); None where the states span none."""
    shape, dtype = passes[0].shape[1:], passes[0].dtype
    rows = torch.cat([z.double().flatten(1) for z in passes])
    mean = rows.mean(0)
    _, size, directions = torch.linalg.svd(rows - mean, full_matrices=False)
    if len(size) < 2 or not float(size[1]) > 1e-9 * float(size[0]):
        return None
    axes = directions[:2]
    axes = axes * axes.gather(1, axes.abs().argmax(1, keepdim=True)).sign()  # their signs are arbitrary otherwise
    flat = (rows - mean) @ axes.T
    low, high = flat.amin(0), flat.amax(0)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    across, down = (torch.linspace(float(low[k]), float(high[k]), GRID, dtype=torch.float64) for k in (0, 1))
    places = torch.stack(torch.meshgrid(across, down.flip(0), indexing="xy"), -1).reshape(-1, 2)
    states = (mean + places @ axes).to(dtype).reshape(-1, *shape)
    logits = torch.cat([head(part) for part in states.split(256)])
    grid = logits.T.reshape(1, -1, GRID, GRID)
    fine = F.interpolate(grid, size=(FINE, FINE), mode="bilinear", align_corners=True)[0].argmax(0)
    counts = [len(z) for z in passes]
    return Plane(
        paths=[[(float(a), float(b)) for a, b in part] for part in flat.split(counts)],
        low=(float(low[0]), float(low[1])),
        high=(float(high[0]), float(high[1])),
        share=float((size[:2] ** 2).sum() / (size**2).sum()),
        regions=fine.tolist(),
    )
