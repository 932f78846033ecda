"""The golden cases: what is given, the models, and the digest of a large vector."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import robustdeq as rd

DATA = Path(__file__).parent / "data"
NAMES = ("A", "B")
FILES = ("weights", "basic", "train", "attack", "stress", "defence")

GIVEN: dict[str, tuple[str, ...]] = {
    "weights": ("*",),
    "basic": ("config_json", "x_uint8", "y", "z_rand_int8", "z_rand_scale", "undef_states_image0_t"),
    "train": ("param_names", "jac_probe_int8", "jac_probe_scale", "trainmode_mask_branch*"),
    "attack": ("grad_names", "x_start", "x_adv"),
    "stress": ("*_scale_keys", "*_scale_factors"),
}
"""Inputs of the comparisons. A test can read these and no others, and none that it compares itself."""

_withheld: list[tuple[str, tuple[str, ...]]] = []


@cache
def arrays(case: str, file: str) -> Mapping[str, np.ndarray]:
    """One file's arrays by name."""
    with np.load(DATA / f"{case}_{file}.npz", allow_pickle=False) as stored:
        return dict(stored)


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@contextmanager
def withheld(file: str, patterns: Sequence[str]) -> Iterator[None]:
    """Inside, these arrays cannot be read: they are being compared."""
    _withheld.append((file, tuple(patterns)))
    try:
        yield
    finally:
        _withheld.pop()


@dataclass(frozen=True)
class Case:
    """A model of the released code with four images."""

    name: str

    def __str__(self) -> str:
        return self.name

    def given(self, file: str, name: str) -> np.ndarray:
        if not matches(name, GIVEN.get(file, ())):
            raise KeyError(
                f"{name} of {self.name}_{file} is a result, not an input: return ours and let it be compared"
            )
        if any(file == other and matches(name, patterns) for other, patterns in _withheld):
            raise KeyError(f"{name} of {self.name}_{file} is what this test compares: it cannot be its input")
        return arrays(self.name, file)[name]

    def tensor(self, file: str, name: str) -> Tensor:
        return torch.from_numpy(self.given(file, name).copy())

    @property
    def x(self) -> Tensor:
        return self.tensor("basic", "x_uint8").double() / 255

    @property
    def x_adv(self) -> Tensor:
        return self.tensor("attack", "x_adv")

    @property
    def y(self) -> Tensor:
        return self.tensor("basic", "y")

    def weights(self) -> dict[str, Tensor]:
        """The released state dict in float64."""
        stored = {name: self.tensor("weights", name) for name in arrays(self.name, "weights")}
        return {name: w.double() if w.is_floating_point() else w for name, w in stored.items()}

    def model(self, variant: str | None = None) -> rd.MDEQ:
        """A fresh model; a stress variant has some weights multiplied."""
        for name in arrays(self.name, "weights"):
            self.given("weights", name)  # refused to a test that compares the weights, also where the model is known
        return copy.deepcopy(_loaded(self, variant))


@cache
def _loaded(case: Case, variant: str | None) -> rd.MDEQ:
    weights = case.weights()
    if variant is not None:
        keys, factors = (case.given("stress", f"{variant}_scale_{what}") for what in ("keys", "factors"))
        for key, factor in zip(keys, factors, strict=True):
            weights[str(key)] *= float(factor)
    return rd.compat.load_released(json.loads(str(case.given("basic", "config_json"))), weights)


CASES = {name: Case(name) for name in NAMES}


@dataclass(frozen=True, eq=False)
class Digest:
    """A large vector (..., sum of segments), to be compared through its digest."""

    vector: Tensor
    segments: Sequence[int]

    @classmethod
    def of_state(cls, z: Tensor, f: rd.BoundDynamics) -> Digest:
        return cls(z, [prod(m.shape[1:]) for m in f.unpack(z.reshape(-1, z.shape[-1]))])

    @classmethod
    def of_image(cls, x: Tensor) -> Digest:
        return cls(x.flatten(-3), [x.shape[-1] * x.shape[-2]] * x.shape[-3])

    def arrays(self, samples: int) -> dict[str, np.ndarray]:
        """The three arrays that are stored; `samples` entries of each segment are kept."""
        parts = [_digest(s.detach().numpy(), samples) for s in self.vector.split(list(self.segments), -1)]
        norm, proj, sub = zip(*parts, strict=True)
        return {"norm": np.stack(norm, -1), "proj": np.stack(proj, -2), "sub": np.stack(sub, -2)}


def _digest(v: np.ndarray, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = v.shape[-1]
    p, j, m = np.arange(4)[:, None], np.arange(1, n + 1), np.arange(samples)
    return (
        np.linalg.norm(v, axis=-1),
        v @ np.cos(0.7 * (p + 1) * j + p).T / np.sqrt(n),
        v[..., (m * (n // samples) + 7 * m + 3) % n],
    )
