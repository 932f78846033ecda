"""Same-size 3x3 convolutions by Winograd's F(4x4, 3x3), which needs a quarter of the multiplications.

A 4x4 tile of the result depends on a 6x6 patch d of the input. With the matrices A, B and G of the Cook-Toom algorithm
the tile is y = A [(G w G^T) * (B d B^T)] A^T, where * is elementwise over the patch and a matrix product over channels:
36 products (tiles x c_in) (c_in x c_out) replace 144.

The evaluation points are 0, +-sqrt 2, +-1/sqrt 2 and infinity. Rounding errors are about twice those of the direct sum,
half of those with the usual points 0, +-1, +-2. The set is closed under inversion, so the transformed kernel also
serves the convolution with the flipped kernel, which is the gradient with respect to the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input

TILE, PATCH = 4, 6
GAIN = 2.4
"""Tiles pay if they save at least this factor of multiply-adds, transforms included (measured)."""
ROWS = 8
"""Minimum number of tiles: with fewer, reading the transformed kernel (four times the entries) takes longest."""
CHUNK = 1 << 21
"""Bytes of transformed patches per chunk, chosen to stay in the cache."""


class Transform:
    """The transformed kernel (36, c_in, c_out) of a weight, computed at the first call."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._value: Tensor | None = None

    def __call__(self) -> Tensor:
        """The transformed kernel."""
        if self._value is None:
            c_out, c_in = self._weight.shape[:2]
            # the result may outlive a caller in inference mode or under autocast
            with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
                taps = self._weight.permute(2, 3, 1, 0).reshape(9, c_in * c_out)
                self._value = (_MATRICES[taps.dtype].kernel @ taps).view(-1, c_in, c_out)
        return self._value


@dataclass(frozen=True, eq=False)
class TiledKernel:
    """A 3x3 kernel and its transform."""

    weight: Tensor
    transform: Transform


def worth_tiling(weight: Tensor, height: int, width: int) -> bool:
    """Whether tiles make convolutions of large enough batches of maps of this size faster, gradients included.

    Only on the CPU: on GPUs cuDNN chooses such algorithms by itself.
    """
    fits = height % TILE == 0 and width % TILE == 0 and height > 0 and width > 0
    if not fits or weight.device.type != "cpu" or weight.dtype not in _MATRICES:
        return False
    c_out, c_in = weight.shape[:2]
    tiles = height * width // TILE**2
    return _gains(c_in, c_out, tiles) and _gains(c_out, c_in, tiles)


def convolve_tiled(x: Tensor, kernel: TiledKernel) -> Tensor:
    """Same-size convolution, by tiles where that is faster and the kernel itself is not differentiated."""
    direct = (
        len(x) * x.shape[2] * x.shape[3] < ROWS * TILE**2
        or (torch.is_grad_enabled() and kernel.weight.requires_grad)
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
        or x.dtype != kernel.weight.dtype
    )
    if direct:
        return F.conv2d(x, kernel.weight, padding=1)
    result: Tensor = _Convolution.apply(x, kernel.weight, kernel.transform)
    return result


def _gains(c_in: int, c_out: int, tiles: int) -> bool:
    entries = TILE**2 if tiles == 1 else PATCH**2  # the rest of a single tile's patch is padding
    ours = PATCH**2 * (entries * c_in + c_in * c_out + TILE**2 * c_out)
    return 9 * TILE**2 * c_in * c_out >= GAIN * ours


class _Convolution(torch.autograd.Function):
    """Convolution with a constant kernel; where the gradient is itself differentiated, PyTorch computes it."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, transform: Transform) -> Tensor:
        return _by_tiles(x, transform(), _MATRICES[x.dtype].forward)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Transform], output: Tensor) -> None:
        x, weight, transform = inputs
        ctx.save_for_backward(weight)
        ctx.shape, ctx.transform = x.shape, transform

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            (weight,) = ctx.saved_tensors
            return conv2d_input(ctx.shape, weight, grad, padding=1), None, None
        return _by_tiles(grad, ctx.transform().mT, _MATRICES[grad.dtype].flipped), None, None


def _by_tiles(x: Tensor, kernel: Tensor, sides: _Sides) -> Tensor:
    """The convolution of x with a transformed kernel (36, c_in, c_out), channels last."""
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
    images = max(1, max(CHUNK, kernel.nbytes) // size)  # at least as large as the kernel, which every chunk reads
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
    """The matrices before and after the products: patches into the transformed space, and tiles out of it."""

    input: Tensor
    """(36, 36)"""
    lone: Tensor
    """(36, 16), for a map of a single tile, whose patch is that tile and padding."""
    output: Tensor
    """(16, 36)"""


@dataclass(frozen=True, eq=False)
class _Matrices:
    kernel: Tensor
    """(36, 9)"""
    forward: _Sides
    flipped: _Sides
    """For the flipped kernel: G flip(w) is G w at the inverse points, times their squares."""


def _matrices(dtype: torch.dtype) -> _Matrices:
    root = 2**0.5
    points = torch.tensor([0.0, root, -root, 1 / root, -1 / root], dtype=torch.float64, device="cpu")
    inverse = [5, 3, 4, 1, 2, 0]  # infinity is the last point
    squares = torch.tensor([1.0, 2.0, 2.0, 0.5, 0.5, 1.0], dtype=torch.float64, device="cpu")

    def powers(count: int) -> Tensor:
        finite = points[:, None] ** torch.arange(count, device="cpu")
        leading = torch.arange(count, device="cpu") == count - 1
        return torch.cat([finite, leading[None].double()])

    a, b, g = powers(TILE).mT, torch.linalg.inv(powers(PATCH)).mT, powers(3)
    flipped = _sides((a * squares)[:, inverse], b[inverse], dtype)
    return _Matrices(kernel=_twice(g).to(dtype), forward=_sides(a, b, dtype), flipped=flipped)


def _sides(a: Tensor, b: Tensor, dtype: torch.dtype) -> _Sides:
    return _Sides(input=_twice(b).to(dtype), lone=_twice(b[:, 1:-1]).to(dtype), output=_twice(a).to(dtype))


def _twice(matrix: Tensor) -> Tensor:
    """The transform of both axes of a map at once."""
    return torch.kron(matrix.contiguous(), matrix.contiguous())


# computed at import, so that the mode of the first convolution does not matter
with torch.inference_mode(False), torch.no_grad():
    _MATRICES = {dtype: _matrices(dtype) for dtype in (torch.float32, torch.float64)}
