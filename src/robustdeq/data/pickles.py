"""Reads the pickles of CIFAR-10 without letting them run anything."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np


class _Array:
    """Stands in for numpy's array and its constructor, and accepts only uint8 values.

    numpy's own class would trust the file with more: a dtype's flags decide whether bytes are read as pointers.
    """

    values = np.empty(0, dtype=np.uint8)

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _UInt8) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("it holds an array that is not uint8")
        self.values = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


class _UInt8:
    """Stands in for numpy.dtype; uint8 is the only one."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it holds an array of {code!r}, not uint8")

    def __setstate__(self, state: object) -> None: ...


class _Latin1(bytes):
    """Stands in for _codecs.encode, with which Python 3 writes bytes in the old protocol."""

    def __new__(cls, text: str, encoding: str) -> _Latin1:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it asks for the codec {encoding!r}")
        return super().__new__(cls, text.encode("latin1"))

    # A class with __setstate__ cannot have its attributes replaced by a pickle.
    def __setstate__(self, state: object) -> None: ...


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _UInt8,
    ("_codecs", "encode"): _Latin1,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for a name that official files contain; imports nothing."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no CIFAR-10 file needs and which was not run"
            ) from None


def read_pickle(data: bytes) -> dict[str, Any]:
    """Reads a pickled dictionary of numbers, texts, lists and uint8 arrays.

    Raises:
        pickle.UnpicklingError: If the data are damaged or hold anything else; the message says what.
    """
    try:
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # damaged opcodes raise anything
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"it holds a {type(content).__name__}, not a dictionary")
    texts = [key.decode("latin1") if isinstance(key, bytes) else str(key) for key in content]
    values = [value.values if isinstance(value, _Array) else value for value in content.values()]
    return dict(zip(texts, values, strict=True))
