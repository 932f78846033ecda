"""What the search of an attack is given: images, labels, and views of the oracle that are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from robustdeq.attacks.oracles import Oracle

Watch = Callable[[Tensor], None]
"""Somebody who wants to know how far an attack is: called with the passes so far of each image, very often."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """Images to attack. `rows` below are positions in this task, without repetition."""

    oracle: Oracle
    x: Tensor
    y: Tensor
    start: Tensor | None
    """Where the first run starts; None: the attack chooses."""
    keys: tuple[str, ...]
    every_image: bool
    """False: an image stops at its first deployed success."""
    places: Tensor
    """Where each row stands in the batch that was handed in."""
    queries: Tensor
    """Passes so far, for the whole batch that was handed in."""
    watch: Watch | None = None
    """Told them at every pass."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def all_rows(self) -> Tensor:
        """0..n-1."""
        return torch.arange(len(self), device=self.x.device)

    def part(self, rows: Tensor) -> Task:
        """Some of the images."""
        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            start=None if self.start is None else self.start[rows],
            keys=tuple(self.keys[int(row)] for row in rows),
            places=self.places[rows],
        )

    def count(self, rows: Tensor) -> None:
        """One more pass for these images."""
        self.queries[self.places[rows]] += 1
        if self.watch is not None:
            self.watch(self.queries)

    def _asked(self, rows: Tensor) -> Oracle:
        """The oracle for these images, which is then shown them once."""
        self.count(rows)
        return self.oracle.for_rows(self.places[rows])

    def seen(self, x: Tensor, rows: Tensor) -> Tensor:
        """The oracle's logits with gradients, its values as it was set."""
        return self._asked(rows)(x)

    def surrogate(self, x: Tensor, rows: Tensor) -> Tensor:
        """The surrogate's logits with gradients."""
        return self._asked(rows).surrogate(x)

    def deployed(self, x: Tensor, rows: Tensor) -> Tensor:
        """The deployed predictor's logits, without gradients."""
        return self._asked(rows).deployed(x)

    def straight_through(self, x: Tensor, rows: Tensor) -> Tensor:
        """The deployed predictor's logits with the surrogate's gradient."""
        return deployed_values(self._asked(rows))(x)

    def seen_and_deployed(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What `seen` gives, and the deployed logits from the same pass."""
        if self.oracle.values == "deployed":
            logits = self.seen(x, rows)
            return logits, logits.detach()
        return self._asked(rows).both(x)


def deployed_values(oracle: Oracle) -> Oracle:
    """The same gradients with the deployed predictor's values."""
    return oracle if oracle.values == "deployed" else replace(oracle, values="deployed")


def fooled(logits: Tensor, y: Tensor) -> Tensor:
    """Per image: the prediction is not y. An answer with NaN in it is not y either: such a predictor has failed."""
    return (logits.argmax(1) != y) | logits.isnan().any(1)
