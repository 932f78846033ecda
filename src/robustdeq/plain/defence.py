"""Input entropy reduction as docs/method.md, section 4 writes it: f and head in full in every inner iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robustdeq.models import MDEQ
from robustdeq.plain.mdeq import CountedDynamics
from robustdeq.plain.solver import Factors, factor, times

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


class Recorder:
    """Collects a defended pass of the images `received`; `f_of(x)` is f(.; x), `head` reads flat states."""

    def __init__(
        self,
        f_of: Callable[[Tensor], Dynamics],
        head: Callable[[Tensor], Tensor],
        received: Tensor,
        *,
        steps: int,
        direction: str,
        step_size: float = 2 / 255,
        radius: float = 8 / 255,
    ) -> None:
        self.f_of, self.head, self.received = f_of, head, received
        self.steps, self.direction, self.step_size, self.radius = steps, direction, step_size, radius
        self.states: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.entropies: list[Tensor] = []
        self.evaluations = 0

    def f(self, x: Tensor) -> Dynamics:
        """The dynamics at these images; every evaluation is counted."""
        f = self.f_of(x)

        def counted(z: Tensor) -> Tensor:
            self.evaluations += 1
            return f(z)

        return counted

    def purify(self, z: Tensor, x_hat: Tensor) -> Tensor:
        """R times x^ <- Proj(x^ - beta direction(grad H(h(f(z; x^)))))."""
        entropies = []
        for _ in range(self.steps):
            with torch.enable_grad():
                x_hat = x_hat.detach().requires_grad_()
                h = entropy(self.head(self.f(x_hat)(z)))
                (gradient,) = torch.autograd.grad(h.sum(), x_hat)
            entropies.append(h.detach())
            x_hat = x_hat.detach() - self.step_size * (gradient.sign() if self.direction == "sign" else gradient)
            x_hat = torch.min(torch.max(x_hat, self.received - self.radius), self.received + self.radius).clamp(0, 1)
        if self.steps > 0:
            self.inputs.append(x_hat)
            self.entropies.append(torch.stack(entropies))
        return x_hat

    def result(self, value: Tensor) -> PlainDefence:
        """All that was collected."""
        x = self.received
        return PlainDefence(
            states=torch.stack(self.states),
            residuals=torch.stack(self.residuals)[..., 0],
            value=value,
            inputs=torch.stack(self.inputs) if self.inputs else x.new_empty(0, *x.shape),
            entropies=torch.stack(self.entropies) if self.entropies else x.new_empty(0, 0, len(x)),
            evaluations=self.evaluations,
        )


def relative(g: Tensor, z: Tensor) -> Tensor:
    """(B, 1): ||g|| / (||g + z|| + 1e-9), infinite where it is not finite."""
    residual = g.norm(dim=1, keepdim=True) / ((g + z).norm(dim=1, keepdim=True) + 1e-9)
    return torch.where(torch.isfinite(residual), residual, torch.inf)


def entropy(logits: Tensor) -> Tensor:
    """(B,): H in nats."""
    log_p = torch.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(1)


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
    direction: str = "sign",
    judge_last: bool = True,
    **sizes: float,
) -> PlainDefence:
    """Algorithm 1 with Broyden's method, each sample by itself, from z^[0] = `z0` (B, D).

    Costs 1 + N evaluations of f, and R + 1 more per intervention; one less without `judge_last`, when the last residual
    is NaN and `value` is the last iterate. `f_of` and `head` are as of `Recorder`, and so are the `sizes`.
    """
    run = Recorder(f_of, head, x, steps=steps, direction=direction, **sizes)
    states, residuals = run.states, run.residuals
    with torch.no_grad():
        f, x_hat, z = run.f(x), x, z0
        g = f(z) - z
        factors: Factors = []
        active = torch.ones(len(z), 1, dtype=torch.bool, device=z.device)
        converged = ~active
        first: Tensor | None = None
        value, lowest = z, torch.full_like(g[:, :1], torch.inf)
        for t in range(max_steps):
            if (t + 1) % every == 0 and steps > 0:
                z_next = torch.where(active, z - times(factors, g), z)
                x_hat = run.purify(z_next, x_hat)
                f = run.f(x_hat)
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
    return run.result(value)


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
    direction: str = "sign",
    **sizes: float,
) -> PlainDefence:
    """The released variant, each sample by its own residual: N / T_f restarted segments, the history corrected between.

    `value` is the last segment's lowest-residual iterate, `residuals` are per segment, one after the other.
    """
    run = Recorder(f_of, head, x, steps=steps, direction=direction, **sizes)
    states, residuals = run.states, run.residuals
    with torch.no_grad():
        f, x_hat, z = run.f(x), x, z0
        g = f(z) - z
        handed: Factors = []
        for segment in range(max_steps // every):
            trace: list[Tensor] = []
            iterates: list[Tensor] = []
            factors: Factors = []
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
            x_hat = run.purify(z, x_hat)
            if segment < max_steps // every - 1:
                f = run.f(x_hat)
                g = f(z) - z
                handed = [*factors, factor(factors, dz, dg + g - last_g)]
    return run.result(z)


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
