"""The low-rank inverse-Jacobian estimate of Broyden's method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LowRankInverse:
    """B = -I + sum_k s_k u_k v_k^T, one set of factors per sample.

    The factors are stored in buffers (capacity, B, D), of which the first `rank` entries are in use: a factor of all
    samples is contiguous, and a batched product can be written into it. `append` writes the new factor into the
    shared buffers and returns a new object. The old object stays valid, because its own factors are never overwritten;
    appending to it again (to take a step again) overwrites the factor that was appended first.
    """

    u_buffer: Float[Tensor, "capacity B D"]
    v_buffer: Float[Tensor, "capacity B D"]
    scale: Float[Tensor, "B rank"]
    """The scales s_k; zero for a factor that was dropped."""

    @classmethod
    def identity(cls, z: Float[Tensor, "B D"], capacity: int) -> LowRankInverse:
        """B = -I, for states like z."""
        batch, dim = z.shape
        buffers = z.new_empty(capacity, batch, dim), z.new_empty(capacity, batch, dim)
        return cls(*buffers, z.new_empty(batch, 0))

    @property
    def rank(self) -> int:
        """The number of factors."""
        return self.scale.shape[1]

    @property
    def u(self) -> Float[Tensor, "B rank D"]:
        """The left factors."""
        return self.u_buffer[: self.rank].transpose(0, 1)

    @property
    def v(self) -> Float[Tensor, "B rank D"]:
        """The right factors."""
        return self.v_buffer[: self.rank].transpose(0, 1)

    def apply(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """The product B x, per sample."""
        return _combine(x, (x[:, None] @ self.v.mT) * self.scale[:, None], self.u)

    def apply_transposed(self, x: Float[Tensor, "B D"], rank: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B D"]:
        """B^T x; `rank` limits each sample to its own first factors."""
        coefficients = (x[:, None] @ self.u.mT) * self.scale[:, None]
        if rank is not None:
            counts = torch.arange(self.rank, device=x.device) < rank[:, None, None]
            # torch.where instead of a product: a later factor may be non-finite, and 0 * nan is nan
            coefficients = torch.where(counts, coefficients, 0.0)
            return _combine(x, coefficients, torch.where(counts.mT, self.v, 0.0))
        return _combine(x, coefficients, self.v)

    def with_products(
        self, x: Float[Tensor, "B D"], y: Float[Tensor, "B D"]
    ) -> tuple[LowRankInverse, Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        """B y and B^T x, the left and right side of the next factor, whose scale is not yet known.

        Without autograd the products are written directly to the place of that factor.
        """
        if x.requires_grad or y.requires_grad or self.scale.requires_grad:
            return self, self.apply(y), self.apply_transposed(x)
        grown = self.with_room()
        u, v = grown.u_buffer[self.rank], grown.v_buffer[self.rank]
        scale = self.scale[:, None]
        torch.baddbmm(y[:, None], (y[:, None] @ self.v.mT) * scale, self.u, beta=-1, out=u[:, None])
        torch.baddbmm(x[:, None], (x[:, None] @ self.u.mT) * scale, self.v, beta=-1, out=v[:, None])
        return grown, u, v

    def append(self, u: Float[Tensor, "B D"], v: Float[Tensor, "B D"], scale: Float[Tensor, " B"]) -> LowRankInverse:
        """B + scale u v^T."""
        scales = torch.cat([self.scale, scale[:, None]], 1)
        if u.requires_grad or v.requires_grad:  # autograd needs the old buffers unchanged: copy them
            us, vs = self.u_buffer[: self.rank], self.v_buffer[: self.rank]
            return LowRankInverse(torch.cat([us, u[None]]), torch.cat([vs, v[None]]), scales)
        grown = self.with_room()
        for buffer, factor in ((grown.u_buffer, u), (grown.v_buffer, v)):
            slot = buffer[self.rank]
            if factor.data_ptr() != slot.data_ptr():  # otherwise `with_products` has written it there already
                slot.copy_(factor)
        return LowRankInverse(grown.u_buffer, grown.v_buffer, scales)

    def with_room(self) -> LowRankInverse:
        """The same estimate with room for one more factor in its buffers."""
        u, v = self.u_buffer, self.v_buffer
        if self.rank < len(u):
            return self
        u, v = (torch.cat([b, b.new_empty(max(1, len(b)), *b.shape[1:])]) for b in (u, v))
        return LowRankInverse(u, v, self.scale)


def _combine(x: Tensor, coefficients: Tensor, rows: Tensor) -> Tensor:
    """-x + sum_k coefficients_k rows_k."""
    return torch.baddbmm(x[:, None], coefficients, rows, beta=-1)[:, 0]
