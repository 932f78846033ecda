"""The guarantees that every attack gives; the author of an attack writes only the search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.arguments import check_arguments, check_labels, checked_start, rows_like
from robustdeq.attacks.oracles import Direct, Oracle, natural_oracle
from robustdeq.attacks.task import Task, Watch, fooled, keys_of, random_starts
from robustdeq.threat import Threat


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackResult:
    """The images that an attack found, judged on the deployed predictor."""

    images: Float[Tensor, "B *image"]
    """The points where the search ended, successful or not; never replaced by the clean images."""
    logits: Float[Tensor, "B C"]
    """The deployed predictor's logits on `images`."""
    success: Bool[Tensor, " B"]
    """Whether the prediction on `images` differs from the label. NaN logits count as a success."""
    queries: Int[Tensor, " B"]
    """Number of times each image was shown to the oracle, the passes that judge success included. A pass counts once,
    whether it asks the surrogate, the deployed predictor or both, with or without a gradient."""
    oracle: str
    """The oracle that the attack saw, such as UnrolledState(state=2)."""


@dataclass(frozen=True)
class Attack(ABC):
    """A search, within a threat, for images that fool the deployed predictor, by what an oracle shows.

    Whatever the search does, the following holds:

    - The images lie in the ball and in [0, 1]. An image that became non-finite is replaced by the received one.
    - Success is judged anew on the deployed predictor.
    - The model keeps its modes, statistics, gradients and `requires_grad` flags.
    - The caller's grad mode and global random state neither matter nor change.
    - An image with NaN pixels is not searched: it stays as it is, is judged like the others and disturbs none of them.
    """

    threat: Threat
    _: KW_ONLY
    seed: int = 0
    """Seed of everything random. Each image draws its own numbers, so results do not depend on how data are batched."""

    takes_start: ClassVar[bool] = True
    """Whether the caller may give a start."""

    @property
    def least_classes(self) -> int:
        """Number of classes that a predictor must have at least for the attack's loss to be defined."""
        return 2

    @property
    def name(self) -> str:
        """Name of the attack in tables, such as PGD-10; that of the class unless overridden."""
        return type(self).__name__

    @property
    def kind(self) -> str:
        """Key of the random starts: attacks of the same kind and seed start at the same points."""
        return type(self).__name__

    @abstractmethod
    def search(self, task: Task) -> Tensor:
        """Return an adversarial candidate for each image of the task.

        Called with gradients enabled and the model in eval mode. Images with NaN pixels are not in the task. Without
        `task.every_image` the search should stop at an image's first deployed success; images that are misclassified
        from the beginning are then not in the task either.
        """

    def __call__(
        self,
        oracle: Oracle | Callable[[Tensor], Tensor],
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
            oracle: The attacker's view of the predictor; for a model or another predictor, its `natural_oracle`.
            x: Pixels in [0, 1], (B, ...).
            y: Labels, (B,), int64.
            start: Starting points of the first run, inside the ball. If None, the attack chooses, usually at random.
            every_image: If False, images that the deployed predictor misclassifies are left alone, and the others stop
                and leave the batch at their first deployed success.
            index: Positions of the images in the data set, which seed their random numbers; if None, their pixels do.
            watch: Progress callback, called at every pass of the oracle.
        """
        oracle = natural_oracle(oracle)
        check_arguments(x, y, index)
        if start is not None and not self.takes_start:
            raise ValueError(f"{self.name} chooses where it starts: leave start=None")
        with torch.inference_mode(False), torch.enable_grad(), oracle.prepared():
            x, y = x.detach().clone(), y.clone()
            batch = Task(
                oracle=oracle.for_attack(len(x)),
                x=x,
                y=y,
                start=checked_start(self.threat, start, x),
                keys=keys_of(x, index),
                every_image=every_image,
                places=torch.arange(len(x), device=x.device),
                queries=torch.zeros(len(x), dtype=torch.int64, device=x.device),
                watch=watch,
            )
            try:
                result = self._attack(batch)
            except (IndexError, RuntimeError):
                check_labels(y, batch.oracle.deployed(x[:1]).shape[1])  # which is why a loss fails, if it is
                raise
            check_labels(y, result.logits.shape[1])
            return result

    def begin(self, task: Task, rows: Tensor, run: int) -> Tensor:
        """The points where a run starts: the given start in run 0, otherwise random points of the balls."""
        if run == 0 and task.start is not None:
            return task.start[rows]
        keys = [task.keys[int(row)] for row in rows]
        return random_starts(self.threat, task.x[rows], self.seed, self.kind, run, keys)

    def _attack(self, batch: Task) -> AttackResult:
        images, logits, attacked = batch.x.clone(), None, batch.x.isfinite().flatten(1).all(1)
        if not batch.every_image:
            logits = batch.deployed(batch.x, batch.all_rows).clone()
            attacked &= ~fooled(logits, batch.y)
        rows = attacked.nonzero().flatten()
        if len(rows) > 0:
            images[rows] = self.contained(batch.part(rows))
        if logits is None:
            logits = batch.deployed(images, batch.all_rows)
        elif len(rows) > 0:
            logits[rows] = batch.deployed(images[rows], rows)
        return AttackResult(
            images=images,
            logits=logits,
            success=fooled(logits, batch.y),
            queries=batch.queries,
            oracle=batch.oracle.name,
        )

    def contained(self, task: Task) -> Tensor:
        """The search's images, projected into the ball and [0, 1]; the received image where one is not finite."""
        task.begin_run(task.all_rows)
        images = self.search(task).detach().to(task.x.dtype)
        images = self.threat.project(images, task.x)
        return torch.where(rows_like(images.isfinite().flatten(1).all(1), images), images, task.x)


@dataclass(frozen=True, kw_only=True)
class Steered(Attack):
    """An attack whose course depends on the logits it sees: step sizes, the best point, whether to stop."""

    steer: Literal["deployed", "surrogate"] = "deployed"
    """Whose logits steer the attack; the gradient is always the surrogate's.

    "surrogate" reproduces the released evaluation, for comparison only: the attack never looks at the deployed
    predictor and returns the clean image where the surrogate was not fooled, which overstates robustness.
    """

    def __post_init__(self) -> None:
        if self.steer not in ("deployed", "surrogate"):
            raise ValueError(f"steer must be 'deployed' or 'surrogate', got {self.steer!r}")

    @abstractmethod
    def find(self, task: Task) -> Tensor:
        """The search, steered by the logits of `task.deployed` and `task.straight_through`."""

    @override
    def search(self, task: Task) -> Tensor:
        if self.steer == "deployed":
            return self.find(task)
        task = replace(task, oracle=Direct(task.oracle.surrogate))
        images = self.find(task)
        with torch.no_grad():
            success = fooled(task.deployed(images, task.all_rows), task.y)
        return torch.where(rows_like(success, images), images, task.x)
