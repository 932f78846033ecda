"""Same-size 3x3 convolutions by Winograd's F(4x4, 3x3): a quarter of the products.

A 4x4 tile of the result depends on a 6x6 patch d of the input. With A, B and G of the Cook-Toom algorithm
y = A [(G w G^T) * (B d B^T)] A^T, where * is elementwise over the patch and a product of matrices over channels: for
all tiles at once 36 products (tiles x c_in) (c_in x c_out) take the place of 144. The evaluation points are 0,
+-sqrt 2, +-1/sqrt 2 and infinity: rounding errors are about twice those of the direct sum (with the usual 0, +-1, +-2
they are ten times), and the points are their own inverses, so that the transformed kernel serves the convolution with
the flipped kernel too, which is the gradient of the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

TILE, PATCH = 4, 6
GAIN = 2.4
"""How many times fewer multiply-adds, transforms included, make up for the passes over memory (measured)."""
ROWS = 32
"""Fewer tiles than this do not make up for transforming the kernel."""
ROWS_KEPT = 8
"""The same where many passes share the transformed kernel: it has four times the entries, and is read every time."""
CHUNK = 1 << 21
"""Bytes of transformed patches at a time: what stays in a cache."""


class Transform:
    """The transformed kernel (36, c_in, c_out) of a weight, computed when it is first asked for."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._value: Tensor | None = None

    def __call__(self) -> Tensor:
        """It."""
        if self._value is None:
            c_out, c_in = self._weight.shape[:2]
            with torch.inference_mode(False), torch.no_grad():  # may outlive an inference-mode caller
                taps = self._weight.permute(2, 3, 1, 0).reshape(9, c_in * c_out)
                self._value = (_matrices(taps.dtype).kernel @ taps).view(-1, c_in, c_out)
        return self._value


@dataclass(frozen=True, eq=False)
class TiledKernel:
    """A 3x3 kernel and its transform."""

    weight: Tensor
    transform: Transform
    rows: int = ROWS
    """Fewer tiles than this are convolved directly."""


def worth_tiling(weight: Tensor, height: int, width: int) -> bool:
    """Whether convolutions of large enough batches of maps of this size, or their gradients, gain by tiles.

    On other devices than the CPU the library chooses such algorithms by itself.
    """
    c_out, c_in = weight.shape[:2]
    fits = height % TILE == 0 and width % TILE == 0 and height > 0 and width > 0
    if not fits or weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    tiles = height * width // TILE**2
    return _gains(c_in, c_out, tiles) or _gains(c_out, c_in, tiles)


def convolve_tiled(x: Tensor, kernel: TiledKernel) -> Tensor:
    """Same-size convolution, by tiles where that is faster."""
    tiles = x.shape[2] * x.shape[3] // TILE**2
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type) or x.dtype != kernel.weight.dtype
    if plain or len(x) * tiles < kernel.rows:
        return F.conv2d(x, kernel.weight, padding=1)
    result: Tensor = _Convolution.apply(x, kernel.weight, kernel.transform)
    return result


def _gains(c_in: int, c_out: int, tiles: int) -> bool:
    entries = TILE**2 if tiles == 1 else PATCH**2  # of a lone tile's patch the rest is padding
    ours = PATCH**2 * (entries * c_in + c_in * c_out + TILE**2 * c_out)
    return 9 * TILE**2 * c_in * c_out >= GAIN * ours


class _Convolution(torch.autograd.Function):
    """The convolution; its first gradients are computed as fast as it is, further ones by PyTorch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, transform: Transform) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        ctx.shape, ctx.transform = x.shape, transform
        c_out, c_in = weight.shape[:2]
        if not _gains(c_in, c_out, x.shape[2] * x.shape[3] // TILE**2):
            return F.conv2d(x, weight, padding=1)
        return _by_tiles(x, transform(), _matrices(x.dtype).forward)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        c_out, c_in = weight.shape[:2]
        for_x = for_weight = None
        if ctx.needs_input_grad[0]:
            if torch.is_grad_enabled() or not _gains(c_out, c_in, grad.shape[2] * grad.shape[3] // TILE**2):
                for_x = conv2d_input(ctx.shape, weight, grad, padding=1)
            else:
                for_x = _by_tiles(grad, ctx.transform().mT, _matrices(grad.dtype).flipped)
        if ctx.needs_input_grad[1]:
            for_weight = conv2d_weight(x, weight.shape, grad, padding=1)
        return for_x, for_weight, None


def _by_tiles(x: Tensor, kernel: Tensor, sides: _Sides) -> Tensor:
    """The convolution of x with a transformed kernel (36, c_in, c_out); it lies channels last."""
    batch, c_in, height, width = x.shape
    c_out = kernel.shape[2]
    rows, columns = height // TILE, width // TILE
    tiles = rows * columns
    pixels = x.permute(0, 2, 3, 1)
    if tiles == 1:
        patches = sides.lone @ pixels.reshape(batch, TILE**2, c_in)
        result = sides.output @ torch.bmm(patches.transpose(0, 1), kernel).transpose(0, 1)
        return result.view(batch, height, width, c_out).permute(0, 3, 1, 2)
    result = x.new_empty(batch, height, width, c_out)
    size = x.element_size() * PATCH**2 * tiles * (c_in + c_out)
    images = max(1, max(CHUNK, kernel.nbytes) // size)  # a smaller chunk would read the kernel more often than patches
    for part, into in zip(pixels.split(images), result.split(images), strict=True):
        padded = F.pad(part, (0, 0, 1, 1, 1, 1))
        b, h, w, c = padded.stride()
        patches = padded.as_strided((len(part), rows, columns, PATCH, PATCH, c_in), (b, TILE * h, TILE * w, h, w, c))
        patches = sides.input @ patches.reshape(-1, PATCH**2, c_in)
        found = sides.output @ torch.bmm(patches.transpose(0, 1), kernel).transpose(0, 1)
        into.view(-1, rows, TILE, columns, TILE, c_out).copy_(
            found.view(-1, rows, columns, TILE, TILE, c_out).transpose(2, 3)
        )
    return result.permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class _Sides:
    """What stands to the left and right of the products: patches into the transformed space, and tiles out of it."""

    input: Tensor
    """(36, 36)"""
    lone: Tensor
    """(36, 16): for a map of a single tile, whose patch is that tile and padding."""
    output: Tensor
    """(16, 36)"""


@dataclass(frozen=True, eq=False)
class _Matrices:
    kernel: Tensor
    """(36, 9)"""
    forward: _Sides
    flipped: _Sides
    """For the convolution with the flipped kernel: G flip(w) is G w at the inverse points, times their squares."""


@cache
def _matrices(dtype: torch.dtype) -> _Matrices:
    root = 2**0.5
    points = [0.0, root, -root, 1 / root, -1 / root]
    inverse = [5, 3, 4, 1, 2, 0]  # infinity is the last
    squares = [1.0, 2.0, 2.0, 0.5, 0.5, 1.0]
    with torch.inference_mode(False), torch.no_grad():

        def powers(count: int) -> Tensor:
            finite = torch.tensor(points, dtype=torch.float64)[:, None] ** torch.arange(count)
            leading = F.one_hot(torch.tensor([count - 1]), count)
            return torch.cat([finite, leading.double()])

        a, b, g = powers(TILE).mT, torch.linalg.inv(powers(PATCH)).mT, powers(3)
        scaled = a * torch.tensor(squares, dtype=torch.float64)
        return _Matrices(_twice(g).to(dtype), _sides(a, b, dtype), _sides(scaled[:, inverse], b[inverse], dtype))


def _sides(a: Tensor, b: Tensor, dtype: torch.dtype) -> _Sides:
    inner = range(1, PATCH - 1)
    return _Sides(
        input=_twice(b).to(dtype),
        lone=_twice(b[:, list(inner)]).to(dtype),
        output=_twice(a).to(dtype),
    )


def _twice(matrix: Tensor) -> Tensor:
    """For both axes of a map at once."""
    return torch.kron(matrix.contiguous(), matrix.contiguous())
