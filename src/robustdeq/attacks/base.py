"""What every attack guarantees; the author of an attack writes only the search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robustdeq.attacks.doors import check_arguments, checked_start, rows_like
from robustdeq.attacks.oracles import Oracle
from robustdeq.attacks.starts import keys_of, random_starts
from robustdeq.attacks.task import Task, Watch, fooled
from robustdeq.threat import Threat


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackResult:
    """What an attack found; everything judged on the deployed predictor."""

    images: Float[Tensor, "B *image"]
    """The points the search ended at, fooling or not: never replaced by the clean images."""
    logits: Float[Tensor, "B C"]
    """The deployed predictor's, on `images`."""
    success: Bool[Tensor, " B"]
    """The prediction on `images` is not the label. NaN logits count: a predictor that breaks has not classified."""
    queries: Int[Tensor, " B"]
    """How often each image, changed or not, was shown to the oracle: to the surrogate, the deployed predictor, or both
    in one pass, with or without a gradient; the passes that judge success included."""


@dataclass(frozen=True)
class Attack(ABC):
    """A search for images that fool the deployed predictor within a threat, by what an oracle shows.

    Whatever the search does: the images lie in the ball and in [0, 1]; one with non-finite pixels is put back as it was
    received; success is judged anew on the deployed predictor; the model keeps its modes, its statistics, its gradients
    and what requires them; the caller's grad mode and random state do not matter and do not change. A NaN image is
    no search's business: it stays as it is, is judged like the others, and disturbs none of them.
    """

    threat: Threat
    _: KW_ONLY
    seed: int = 0
    """Of everything random; each image draws for itself, so its result does not depend on its batch-mates."""

    takes_start: ClassVar[bool] = True
    """Whether a start can be given."""

    @property
    def least_classes(self) -> int:
        """How many classes a predictor must have for its loss to be defined."""
        return 2

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @property
    def kind(self) -> str:
        """Attacks of one kind and seed have the same random starts."""
        return type(self).__name__

    @abstractmethod
    def search(self, task: Task) -> Tensor:
        """An image for each of the task's. Called with gradients enabled, the model in eval mode.

        Images with NaN pixels are not among the task's. Without `task.every_image` it should stop at an image's first
        deployed success; images that are misclassified from the beginning are then not among the task's either.
        """

    def __call__(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        *,
        start: Tensor | None = None,
        every_image: bool = True,
        index: Sequence[int] | Tensor | None = None,
        watch: Watch | None = None,
    ) -> AttackResult:
        """Attack a batch.

        Args:
            oracle: What the attacker sees of the predictor.
            x: Pixels in [0, 1], (B, ...).
            y: Labels, (B,), int64.
            start: Where the first run starts, inside the ball; None: a random point of it, or what the attack prefers.
            every_image: False: images that the deployed predictor misclassifies are left alone, the others stop and
                leave the batch at their first deployed success.
            index: The images' places in the data, by which their random numbers are drawn; None: by their pixels.
            watch: Called at every pass with the passes so far of each image, for those who show progress.
        """
        check_arguments(oracle, x, y, index)
        if start is not None and not self.takes_start:
            raise ValueError(f"{self.name} chooses where it starts: leave start=None")
        with torch.inference_mode(False), torch.enable_grad(), oracle.prepared():
            x = x.detach().clone()
            return self._attack(oracle, x, y.clone(), checked_start(self.threat, start, x), every_image, index, watch)

    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        """Where a run starts: the given start in run 0, else a random point of the ball."""
        if run == 0 and task.start is not None:
            return task.start[rows]
        keys = [task.keys[int(row)] for row in rows]
        return random_starts(self.threat, task.x[rows], self.seed, self.kind, run, keys)

    def _attack(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        start: Tensor | None,
        every_image: bool,
        index: Sequence[int] | Tensor | None,
        watch: Watch | None,
    ) -> AttackResult:
        batch = Task(
            oracle=oracle,
            x=x,
            y=y,
            start=start,
            keys=keys_of(x, index),
            every_image=every_image,
            places=torch.arange(len(x), device=x.device),
            queries=torch.zeros(len(x), dtype=torch.int64, device=x.device),
            watch=watch,
        )
        images, logits, attacked = x.clone(), None, x.isfinite().flatten(1).all(1)
        if not every_image:
            logits = batch.deployed(x, batch.all_rows).clone()
            attacked &= ~fooled(logits, y)
        rows = attacked.nonzero().flatten()
        if len(rows) > 0:
            images[rows] = self.contained(batch.part(rows))
        if logits is None:
            logits = batch.deployed(images, batch.all_rows)
        elif len(rows) > 0:
            logits[rows] = batch.deployed(images[rows], rows)
        return AttackResult(images=images, logits=logits, success=fooled(logits, y), queries=batch.queries)

    def contained(self, task: Task) -> Tensor:
        """What the search found, inside the ball and [0, 1]; where it is not finite, the image as it was received."""
        images = self.search(task).detach().to(task.x.dtype)
        images = self.threat.project(images, task.x)
        return torch.where(rows_like(images.isfinite().flatten(1).all(1), images), images, task.x)
