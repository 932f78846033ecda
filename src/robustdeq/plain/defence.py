"""Input entropy reduction as docs/method.md, section 4 writes it: f and head in full in every inner iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.plain.mdeq import CountedDynamics
from robustdeq.plain.solver import Factors, times, transposed_times

Dynamics = Callable[[Tensor], Tensor]


@dataclass
class PlainDefence:
    """What a defended pass returns."""

    states: Tensor
    """(N, B, D): z^[1..N]; a finished sample's last iterate repeats until its input changes."""
    residuals: Tensor
    """(N, B), relative, each with the input of its step."""
    value: Tensor
    """(B, D): the lowest-residual iterate of those that were measured with the last input."""
    inputs: Tensor
    """(interventions, B, C, H, W): the purified images after each intervention."""
    entropies: Tensor
    """(interventions, R, B): each image's H before each update."""
    evaluations: int
    """Of f, in full."""


class Counted:
    """f(.; x) of any x, with one count of all evaluations."""

    def __init__(self, f_of: Callable[[Tensor], Dynamics]) -> None:
        self.f_of = f_of
        self.evaluations = 0

    def __call__(self, x: Tensor) -> Dynamics:
        """f(.; x)."""
        f = self.f_of(x)

        def counted(z: Tensor) -> Tensor:
            self.evaluations += 1
            return f(z)

        return counted


def relative(g: Tensor, z: Tensor) -> Tensor:
    """(B, 1): ||g|| / (||g + z|| + 1e-9), infinite where it is not finite."""
    residual = g.norm(dim=1, keepdim=True) / ((g + z).norm(dim=1, keepdim=True) + 1e-9)
    return torch.where(torch.isfinite(residual), residual, torch.inf)


def factor(factors: Factors, dz: Tensor, dg: Tensor) -> tuple[Tensor, Tensor]:
    """Broyden's next (u, v)."""
    v = transposed_times(factors, dz)
    u = (dz - times(factors, dg)) / (v * dg).sum(1, keepdim=True)
    return torch.where(torch.isfinite(u), u, 0.0), v


def entropy(logits: Tensor) -> Tensor:
    """(B,): H in nats."""
    log_p = torch.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(1)


def purify(
    f_of: Callable[[Tensor], Dynamics],
    head: Callable[[Tensor], Tensor],
    z: Tensor,
    x_hat: Tensor,
    received: Tensor,
    *,
    steps: int,
    step_size: float,
    radius: float,
    direction: str,
) -> tuple[Tensor, list[Tensor]]:
    """R times x^ <- Proj(x^ - beta direction(grad H(h(f(z; x^))))); and H before each."""
    entropies = []
    for _ in range(steps):
        with torch.enable_grad():
            x_hat = x_hat.detach().requires_grad_()
            h = entropy(head(f_of(x_hat)(z)))
            (gradient,) = torch.autograd.grad(h.sum(), x_hat)
        entropies.append(h.detach())
        move = gradient.sign() if direction == "sign" else gradient
        x_hat = x_hat.detach() - step_size * move
        x_hat = torch.min(torch.max(x_hat, received - radius), received + radius).clamp(0, 1)
    return x_hat.detach(), entropies


def entropy_reduction(
    f_of: Callable[[Tensor], Dynamics],
    head: Callable[[Tensor], Tensor],
    z0: Tensor,
    x: Tensor,
    *,
    max_steps: int = 8,
    tol: float = 1e-3,
    every: int = 2,
    steps: int = 10,
    step_size: float = 2 / 255,
    radius: float = 8 / 255,
    direction: str = "gradient",
    judge_last: bool = True,
) -> PlainDefence:
    """Algorithm 1 with Broyden's method, each sample by itself, from z^[0] = `z0` (B, D).

    Costs 1 + N evaluations of f, and R + 1 more per intervention; one less without `judge_last`, when the last residual
    is NaN and `value` is the last iterate. `f_of(x)` is f(.; x), `head` reads flat states.
    """
    counted = Counted(f_of)
    settings: dict[str, Any] = {"steps": steps, "step_size": step_size, "radius": radius, "direction": direction}
    states: list[Tensor] = []
    residuals: list[Tensor] = []
    inputs: list[Tensor] = []
    entropies: list[Tensor] = []
    with torch.no_grad():
        f, x_hat, z = counted(x), x, z0
        g = f(z) - z
        factors: Factors = []
        active = torch.ones(len(z), 1, dtype=torch.bool, device=z.device)
        converged = ~active
        first: Tensor | None = None
        value, lowest = z, torch.full_like(g[:, :1], torch.inf)
        for t in range(max_steps):
            if (t + 1) % every == 0 and steps > 0:
                z_next = torch.where(active, z - times(factors, g), z)
                x_hat, before = purify(counted, head, z_next, x_hat, x, **settings)
                inputs.append(x_hat)
                entropies.append(torch.stack(before))
                f = counted(x_hat)
                g = f(z) - z
                residual = relative(g, z)
                woken = converged & (residual >= tol) & torch.isfinite(residual)
                active, converged = active | woken, converged & ~woken
                if first is not None:
                    first = torch.where(active, residual, first)
                value, lowest = torch.where(active, z, value), torch.where(active, residual, lowest)
            z_new = torch.where(active, z - times(factors, g), z)
            states.append(z_new)
            if t == max_steps - 1 and not judge_last:
                residuals.append(torch.where(active, torch.nan, residuals[-1] if residuals else torch.nan))
                value = z_new
                break
            g_new = torch.where(active, f(z_new) - z_new, g)
            residual = torch.where(active, relative(g_new, z_new), residuals[-1] if residuals else torch.inf)
            residuals.append(residual)
            first = residual if first is None else first
            better = (active & (residual < lowest)) if t else torch.ones_like(active)
            value, lowest = torch.where(better, z_new, value), torch.where(better, residual, lowest)
            converged = converged | (active & (residual < tol))
            stopped = (residual < tol) | (residual > 1e3 * first) | torch.isinf(residual)
            factors.append(factor(factors, z_new - z, g_new - g))
            z, g, active = z_new, g_new, active & ~stopped
    return _collect(states, residuals, value, inputs, entropies, x, counted)


def released_entropy_reduction(
    f_of: Callable[[Tensor], Dynamics],
    head: Callable[[Tensor], Tensor],
    z0: Tensor,
    x: Tensor,
    *,
    max_steps: int = 8,
    tol: float = 1e-3,
    every: int = 2,
    steps: int = 10,
    step_size: float = 2 / 255,
    radius: float = 8 / 255,
    direction: str = "sign",
) -> PlainDefence:
    """The released variant, each sample by its own residual: N / T_f restarted segments, the history corrected between.

    `value` is the last segment's lowest-residual iterate, `residuals` are per segment, one after the other.
    """
    counted = Counted(f_of)
    settings: dict[str, Any] = {"steps": steps, "step_size": step_size, "radius": radius, "direction": direction}
    states: list[Tensor] = []
    residuals: list[Tensor] = []
    inputs: list[Tensor] = []
    entropies: list[Tensor] = []
    with torch.no_grad():
        f, x_hat, z = counted(x), x, z0
        g = f(z) - z
        handed: Factors = []
        for segment in range(max_steps // every):
            trace: list[Tensor] = []
            iterates: list[Tensor] = []
            factors: list[tuple[Tensor, Tensor]] = []
            active = torch.ones(len(z), 1, dtype=torch.bool, device=z.device)
            dz, dg = torch.zeros_like(z), torch.zeros_like(g)
            for s in range(every):
                z_new = torch.where(active, z - times(factors if s else handed, g), z)
                g_new = torch.where(active, f(z_new) - z_new, g)
                residual = torch.where(active, relative(g_new, z_new), trace[-1] if trace else torch.inf)
                iterates.append(z_new)
                trace.append(residual)
                dz, dg = torch.where(active, z_new - z, dz), torch.where(active, g_new - g, dg)
                stopped = (residual < tol) | (residual > 1e3 * trace[0]) | torch.isinf(residual)
                active = active & ~stopped
                z, g = z_new, g_new
                if s < every - 1:  # a sample that has stopped learns nothing more
                    u, v = factor(factors, dz, dg)
                    factors.append((torch.where(active, u, 0.0), v))
            states += iterates
            residuals += trace
            choice = torch.stack(trace)[..., 0].argmin(0)
            last_g, z = g, torch.stack(iterates)[choice, torch.arange(len(x), device=x.device)]
            x_hat, before = purify(counted, head, z, x_hat, x, **settings)
            if steps > 0:
                inputs.append(x_hat)
                entropies.append(torch.stack(before))
            if segment < max_steps // every - 1:
                f = counted(x_hat)
                g = f(z) - z
                handed = [*factors, factor(factors, dz, dg + g - last_g)]
    return _collect(states, residuals, z, inputs, entropies, x, counted)


def defended_mdeq(
    model: MDEQ, x: Tensor, *, variant: str = "paper", max_steps: int = 8, tol: float = 1e-3, **settings: Any
) -> tuple[Tensor, PlainDefence]:
    """Logits of the head at the last defended state of an MDEQ, and the pass; settings as of the two functions."""
    defend = entropy_reduction if variant == "paper" else released_entropy_reduction
    with torch.no_grad():
        received = CountedDynamics(model, model.encoder(x))

    def f_of(pixels: Tensor) -> CountedDynamics:
        return received if pixels is x else CountedDynamics(model, model.encoder(pixels))

    def head(z: Tensor) -> Tensor:
        return model.head(received.split(z))

    run = defend(f_of, head, received.zero(), x, max_steps=max_steps, tol=tol, **settings)
    with torch.no_grad():
        return head(run.states[-1]), run


def _collect(
    states: list[Tensor],
    residuals: list[Tensor],
    value: Tensor,
    inputs: list[Tensor],
    entropies: list[Tensor],
    x: Tensor,
    counted: Counted,
) -> PlainDefence:
    return PlainDefence(
        states=torch.stack(states),
        residuals=torch.stack(residuals)[..., 0],
        value=value,
        inputs=torch.stack(inputs) if inputs else x.new_empty(0, *x.shape),
        entropies=torch.stack(entropies) if entropies else x.new_empty(0, 0, len(x)),
        evaluations=counted.evaluations,
    )
