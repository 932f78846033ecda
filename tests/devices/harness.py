"""A second device without hardware: tensors that claim another device and keep their numbers on the CPU.

`Elsewhere` is a tensor subclass that says `device="meta"` and wraps a CPU tensor. Inside `elsewhere()` a dispatch mode
computes every operation on the wrapped tensors, creates tensors there when asked for that device, and raises where an
operation mixes tensors of the two devices, as a GPU would. It also counts what would make a GPU wait for the host: a
number or a tensor that is read back, and results whose size depends on values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("meta")
"""The device that the tensors claim; PyTorch knows it everywhere and has no kernels that compute on it."""

aten = torch.ops.aten
READ_BACK = {aten._local_scalar_dense.default, aten.equal.default, aten.is_nonzero.default}
"""Operations that return a number to the host."""
SIZE_DEPENDS_ON_VALUES = {
    aten.nonzero.default, aten.masked_select.default, aten.unique_dim.default, aten._unique2.default,
    aten.unique_consecutive.default, aten.repeat_interleave.Tensor,
}  # fmt: skip


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of both devices."""


class Elsewhere(Tensor):
    """A tensor on the other device."""

    data_: Tensor

    @staticmethod
    def __new__(cls, data: Tensor) -> Elsewhere:
        result = Tensor._make_wrapper_subclass(
            cls, data.size(), strides=data.stride(), storage_offset=data.storage_offset(), dtype=data.dtype,
            device=DEVICE,
        )  # fmt: skip
        result.data_ = data
        return result

    def __repr__(self) -> str:
        return f"Elsewhere({self.data_})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called on the other device outside of `elsewhere()`")

    def data_ptr(self) -> int:
        return self.data_.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor of another device to numpy; use Tensor.cpu() first")

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        return memo.setdefault(id(self), torch.nn.Parameter(copied) if getattr(self, "_is_param", False) else copied)


class CreatesElsewhere(TorchFunctionMode):
    """`torch.tensor(..., device=...)` copies to its device without a word to dispatch modes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor, torch.asarray) and kwargs.get("device") is not None:
            device = kwargs["device"]
            return func(*args, **{**kwargs, "device": "cpu"}).to(device)
        return func(*args, **kwargs)


class OtherDevice(TorchDispatchMode):
    """Computes on the other device, refuses to mix devices, and counts what a GPU would have to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        """Operations after which the host has to wait for the device, by name."""
        self.ran: Counter[str] = Counter()
        """Operations that ran on the other device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        there = any(isinstance(t, Elsewhere) for t in tensors)
        target = kwargs.get("device")
        if func is aten._to_copy.default:
            return self._copied(args[0], kwargs, there)
        if func is aten.copy_.default:
            self._count(func, there and not all(isinstance(t, Elsewhere) for t in tensors))
            _contents(args[0]).copy_(_contents(args[1]))
            return args[0]
        goes_there = there if target is None else torch.device(target) == DEVICE
        if not there and not goes_there:
            return func(*args, **kwargs)
        self._check(func, tensors)
        self.ran[str(func)] += 1
        self._count(func, func in READ_BACK or func in SIZE_DEPENDS_ON_VALUES or _indexes_by_mask(func, args))
        if target is not None:
            kwargs["device"] = "cpu"
        if isinstance(kwargs.get("generator"), torch.Generator):
            raise MixedDevicesError(f"{func} draws on another device than that of its generator")
        inner_args, inner_kwargs = tree_map_only(Elsewhere, lambda t: t.data_, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        if torch.Tag.inplace_view in func.tags:  # such as unsqueeze_: what the wrapper says of its shape changes too
            with no_dispatch():
                func(*args, **kwargs)
        return self._wrapped(func, result, args, kwargs, inner_args, inner_kwargs) if goes_there else result

    def _copied(self, source: Tensor, kwargs: dict[str, Any], there: bool) -> Tensor:
        """`Tensor.to`: the only operation that may move a tensor between devices, besides `copy_`."""
        target = kwargs.pop("device", None)
        goes_there = there if target is None else torch.device(target) == DEVICE
        self._count(aten._to_copy.default, there and not goes_there)
        kwargs.pop("non_blocking", None)
        result = aten._to_copy.default(_contents(source), **kwargs)
        return Elsewhere(result) if goes_there else result

    def _wrapped(self, func: Any, result: Any, args: Any, kwargs: Any, inner_args: Any, inner_kwargs: Any) -> Any:
        """Results as tensors of the other device; what was changed in place is the tensor that was given."""
        given = {
            id(inner): outer
            for inner, outer in zip(
                tree_flatten((inner_args, inner_kwargs))[0], tree_flatten((args, kwargs))[0], strict=True
            )
            if isinstance(outer, Elsewhere)
        }
        return tree_map_only(Tensor, lambda t: given[id(t)] if id(t) in given else Elsewhere(t), result)

    def _check(self, func: Any, tensors: list[Tensor]) -> None:
        here = [t for t in tensors if not isinstance(t, Elsewhere)]
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default):
            here = [t for t in here if t.dtype not in (torch.bool, torch.int64)]  # indices may lie on the CPU
        if mixed := [tuple(t.shape) for t in here if t.ndim > 0]:  # CPU numbers go along with a kernel's arguments
            raise MixedDevicesError(f"{func} was given tensors of both devices; on the CPU: {mixed}")

    def _count(self, func: Any, waits: bool) -> None:
        if waits:
            self.waits[str(func)] += 1


def _contents(t: Tensor) -> Tensor:
    return t.data_ if isinstance(t, Elsewhere) else t


def _indexes_by_mask(func: Any, args: Any) -> bool:
    """Indexing by a mask has to know how many entries are set."""
    if func not in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        return False
    return any(isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1])


def there(x: Any) -> Any:
    """Tensors of any nesting, or a module, on the other device; inside `elsewhere()`."""
    if isinstance(x, torch.nn.Module):
        return x.to(DEVICE)
    return tree_map_only(Tensor, lambda t: t.to(DEVICE), x)


def here(x: Any) -> Any:
    """Tensors of any nesting, back on the CPU; inside `elsewhere()`."""
    return tree_map_only(Tensor, lambda t: t.cpu() if isinstance(t, Elsewhere) else t, x)


@contextmanager
def elsewhere() -> Iterator[OtherDevice]:
    """Within it the other device exists. Outside, its tensors raise."""
    asked: Callable[..., bool] = torch.is_autocast_enabled
    autocast: Callable[..., Any] = torch.autocast

    def enabled(kind: str | None = None) -> bool:
        return asked("cpu" if kind == DEVICE.type else kind) if kind is not None else asked()

    def on_cpu(kind: str, *args: Any, **kwargs: Any) -> Any:
        return autocast("cpu" if kind == DEVICE.type else kind, *args, **kwargs)

    with (
        mock.patch("torch.is_autocast_enabled", enabled),  # PyTorch has no autocast for the device that we claim
        mock.patch("torch.autocast", on_cpu),
        CreatesElsewhere(),
        OtherDevice() as device,
    ):
        yield device
