"""The input of an attack's search: images, labels, random starts, and access to the oracle with every pass counted.

A random start is a pure function of (seed, attack, run, image), whatever the rest of the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustdeq.attacks.oracles import Oracle
from robustdeq.threat import Threat, cross_entropy

Watch = Callable[[Tensor], None]
"""Progress callback, called at every pass of the oracle with the number of passes of each image so far."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Images to attack. In the methods below, `rows` are positions in this task, without repetition."""

    oracle: Oracle
    x: Tensor
    y: Tensor
    start: Tensor | None
    """Starting points of the first run; None if the attack chooses."""
    keys: tuple[str, ...]
    """Key of each image, from which its random numbers are drawn."""
    every_image: bool
    """If False, an image stops at its first deployed success."""
    places: Tensor
    """Position of each row in the batch that the caller handed in."""
    queries: Tensor
    """Number of passes so far of each image of the caller's batch."""
    watch: Watch | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def all_rows(self) -> Tensor:
        """0, ..., n - 1."""
        return torch.arange(len(self), device=self.x.device)

    def part(self, rows: Tensor) -> Task:
        """The task restricted to some of its images."""
        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            start=None if self.start is None else self.start[rows],
            keys=tuple(self.keys[int(row)] for row in rows),
            places=self.places[rows],
        )

    def begin_run(self, rows: Tensor) -> None:
        """Tell the oracle that a new run begins for these images: nothing of their earlier passes may matter to it."""
        self.oracle.forget(self.places[rows])

    def count(self, rows: Tensor) -> None:
        """Count one more pass for these images."""
        self.queries[self.places[rows]] += 1
        if self.watch is not None:
            self.watch(self.queries)

    def _ask(self, rows: Tensor) -> Oracle:
        """The oracle for these images, with the pass that follows counted."""
        self.count(rows)
        return self.oracle.for_rows(self.places[rows])

    def seen(self, x: Tensor, rows: Tensor) -> Tensor:
        """The oracle's logits, with the values it was configured to show and the surrogate's gradient."""
        return self._ask(rows)(x)

    def gradient(self, x: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy) -> Tensor:
        """The gradient at x of a loss of the oracle's logits and the labels, one value per image, for all images."""
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss(self.seen(x, self.all_rows), self.y).sum(), x)[0]

    def deployed(self, x: Tensor, rows: Tensor) -> Tensor:
        """The deployed predictor's logits, without gradients."""
        return self._ask(rows).deployed(x)

    def straight_through(self, x: Tensor, rows: Tensor) -> Tensor:
        """The deployed predictor's logits with the surrogate's gradient."""
        return deployed_values(self._ask(rows))(x)

    def seen_and_deployed(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of `seen` and of `deployed`, from one pass."""
        if self.oracle.values == "deployed":
            logits = self.seen(x, rows)
            return logits, logits.detach()
        return self._ask(rows).both(x)


def deployed_values(oracle: Oracle) -> Oracle:
    """The oracle with the same gradients, showing the deployed predictor's values."""
    return oracle if oracle.values == "deployed" else replace(oracle, values="deployed")


def fooled(logits: Tensor, y: Tensor) -> Tensor:
    """Per image, whether the prediction differs from y. NaN logits count: the predictor has failed to classify."""
    return (logits.argmax(1) != y) | logits.isnan().any(1)


def keys_of(x: Tensor, index: Sequence[int] | Tensor | None) -> tuple[str, ...]:
    """A key for each image: its index in the data set if given, otherwise a hash of its pixels."""
    if index is None:
        pixels = x.detach().cpu().contiguous()
        return tuple(hashlib.sha256(image.view(torch.uint8).numpy().tobytes()).hexdigest() for image in pixels)
    return tuple(f"index {int(i)}" for i in index)


def generator_for(seed: int, kind: str, run: int, key: str) -> torch.Generator:
    """A generator on the CPU, so that every device gets the same numbers."""
    digest = hashlib.sha256(f"{seed}/{kind}/{run}/{key}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def random_starts(threat: Threat, x: Tensor, seed: int, kind: str, run: int, keys: Sequence[str]) -> Tensor:
    """A random point of each image's ball, with pixels in [0, 1]."""
    return torch.cat(
        [threat.random_start(x[i : i + 1], generator_for(seed, kind, run, key)) for i, key in enumerate(keys)]
    )
