"""Gradient honesty: does an estimator's input gradient point where the deployed predictor really changes?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robustdeq.attacks.arguments import check_arguments
from robustdeq.attacks.ascent import input_gradient
from robustdeq.attacks.oracles import Oracle, natural_oracle
from robustdeq.attacks.task import deployed_values
from robustdeq.threat import margin


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientHonesty:
    """Cosines per oracle and image: 1 is an honest gradient, 0 is uninformative, -1 is misleading."""

    cosines: dict[str, Float[Tensor, " B"]]

    @property
    def mean(self) -> dict[str, float]:
        """Mean cosine over images, per oracle."""
        return {name: float(cosine.mean()) for name, cosine in self.cosines.items()}

    @property
    def min(self) -> dict[str, float]:
        """Smallest cosine over images, per oracle."""
        return {name: float(cosine.min()) for name, cosine in self.cosines.items()}

    def table(self) -> str:
        """Mean and smallest cosine as plain text, one line per oracle."""
        width = max(len("oracle"), *map(len, self.cosines))
        rows = [f"{name:<{width}}  {self.mean[name]:>9.6f}  {self.min[name]:>9.6f}" for name in self.cosines]
        return "\n".join([f"{'oracle':<{width}}  {'mean':>9}  {'min':>9}", *rows])


def gradient_honesty(
    oracles: Mapping[str, Oracle | Callable[[Tensor], Tensor]],
    x: Tensor,
    y: Tensor,
    *,
    directions: int = 64,
    step: float = 1e-4,
    seed: int = 0,
) -> GradientHonesty:
    """Compare each oracle's gradient of the deployed margin with central finite differences.

    Both are projected on the same random orthonormal directions, and the cosine is taken within their span; it is 0
    where a projection vanishes. Finite differences need precision: use float64. The shifted images may leave [0, 1] by
    `step`.

    Args:
        oracles: Oracles by name; a predictor stands for its `natural_oracle`.
        x: Pixels in [0, 1], (B, ...).
        y: Labels, (B,), int64.
        directions: Number of directions, at most the number of pixels; each costs two deployed passes.
        step: Step of the differences in pixel units; choose it smaller, such as 1e-6, if many ReLUs would switch in it.
        seed: Seed of the directions.
    """
    views = {name: natural_oracle(oracle) for name, oracle in oracles.items()}
    check_arguments(x, y, None)
    with torch.inference_mode(False), torch.enable_grad():
        x, y = x.detach().clone(), y.clone()
        axes = _orthonormal(x[0].numel(), directions, seed).to(x)
        # holds the target too: id() is unique only while the object lives
        differences: dict[int, tuple[object, Tensor]] = {}
        cosines = {}
        for name, oracle in views.items():
            target = oracle.target
            if id(target) not in differences:
                differences[id(target)] = target, _differences(oracle.deployed, x, y, axes, step)
            variable = x.clone().requires_grad_()
            gradient = input_gradient(margin(deployed_values(oracle)(variable), y), variable)
            cosine = torch.cosine_similarity(gradient.flatten(1) @ axes, differences[id(target)][1], dim=1, eps=0)
            cosines[name] = cosine.nan_to_num(nan=0.0)
        return GradientHonesty(cosines=cosines)


def _orthonormal(size: int, count: int, seed: int) -> Tensor:
    """Orthonormal columns, (size, min(count, size)), from the QR decomposition of a Gaussian matrix."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, min(count, size), dtype=torch.float64, generator=generator)).Q


def _differences(deployed: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, axes: Tensor, step: float) -> Tensor:
    """Derivatives of the deployed margin along each direction, (B, directions)."""

    def along(axis: Tensor) -> Tensor:
        shift = step * axis.reshape(x.shape[1:])
        return (margin(deployed(x + shift), y) - margin(deployed(x - shift), y)) / (2 * step)

    return torch.stack([along(axis) for axis in axes.T], dim=1)
