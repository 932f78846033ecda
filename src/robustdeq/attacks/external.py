"""FAB-T and Square, as pyautoattack computes them, and the AutoAttack ensemble (Croce & Hein 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor

from robustdeq.attacks.apgd import APGD
from robustdeq.attacks.base import Attack
from robustdeq.attacks.bridge import Bridge, norm_of
from robustdeq.attacks.starts import generator_for
from robustdeq.attacks.steering import Steered
from robustdeq.attacks.task import Task, fooled


@dataclass(frozen=True, kw_only=True)
class FABT(Steered):
    """Targeted fast adaptive boundary attack: the nearest adversarial point it can find, for each target in turn.

    An image ends at the first such point that fools the deployed predictor inside the ball; else at the nearest one
    found, pulled back into the ball; else, where none was found or the clean image is misclassified, as received.
    Nothing is random. The library computes in float32.
    """

    n_iter: int = 100
    targets: int = 9
    """How many classes are tried, the likeliest wrong one first; at most all wrong ones."""

    takes_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.n_iter, self.targets) < 1:
            raise ValueError(f"n_iter and targets must be at least 1, got {self.n_iter} and {self.targets}")

    @property
    def name(self) -> str:
        """FAB-T."""
        return "FAB-T"

    def find(self, task: Task) -> Tensor:
        """Target by target, on the images that are still classified correctly."""
        clean = task.deployed(task.x, task.all_rows)
        images = task.x.clone()
        nearest = torch.full((len(task),), torch.inf, dtype=task.x.dtype, device=task.x.device)
        rows = (~fooled(clean, task.y)).nonzero().flatten()
        for target in range(min(self.targets, clean.shape[1] - 1)):
            if len(rows) == 0:
                break
            point, distance = self._towards(task, rows, target)
            point = self.threat.project(point, task.x[rows])
            success = fooled(task.deployed(point, rows), task.y[rows])
            better = success | (distance < nearest[rows])
            images[rows[better]], nearest[rows[better]] = point[better], distance[better]
            rows = rows[~success]
        return images

    def _towards(self, task: Task, rows: Tensor, target: int) -> tuple[Tensor, Tensor]:
        """The adversarial point nearest to each image and its distance; where there is none, the image and infinity."""
        x = task.x[rows]
        library = FABAttack_PT(
            Bridge(task, rows), norm=norm_of(self.threat), n_iter=self.n_iter, eps=self.threat.eps, device=x.device
        )
        library.target_class = target + 2  # it counts from the likeliest class, the label, as 1
        with torch.no_grad():
            point = library.attack_single_run(x, task.y[rows], is_targeted=True).to(x.dtype)
        point = torch.where(point == x.float().to(x.dtype), x, point)
        distance = self.threat.distance(point, x)
        unusable = ~distance.isfinite() | (distance == 0)
        return point, torch.where(unusable, torch.inf, distance)


@dataclass(frozen=True, kw_only=True)
class Square(Steered):
    """Random search with squares on the margin, which needs no gradient.

    An image ends at the first point that fools the deployed predictor, else at the one of lowest margin. The positions
    of the squares are shared by all images of a seed; signs that differ between images are each image's own.
    """

    n_queries: int = 5000

    takes_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_queries < 1:
            raise ValueError(f"n_queries must be at least 1, got {self.n_queries}")

    @property
    def name(self) -> str:
        """Square."""
        return "Square"

    def find(self, task: Task) -> Tensor:
        """One run."""
        if task.x.ndim != 4 or min(task.x.shape[2:]) < 5:
            raise ValueError(f"Square needs images (batch, channels, >= 5, >= 5), got {tuple(task.x.shape)}")
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(generator_for(self.seed, "Square", 0, "shared").initial_seed())
            return _SquareRun(self, task).attack_single_run(task.x, task.y)[1]


class _SquareRun(SquareAttack):  # type: ignore[misc]  # the library is not annotated
    """The library's search, with random numbers that do not depend on the batch, and NaN logits as success."""

    def __init__(self, attack: Square, task: Task) -> None:
        self.bridge, self.alive = Bridge(task, task.all_rows), list(range(len(task)))
        super().__init__(
            self.bridge,
            norm=norm_of(attack.threat),
            n_queries=attack.n_queries,
            eps=attack.threat.eps,
            resc_schedule=False,
            device=task.x.device,
        )
        self.init_hyperparam(task.x)
        self.generators = [generator_for(attack.seed, "Square", 0, key) for key in task.keys]

    def random_choice(self, shape: list[int]) -> Tensor:
        """Random signs. Four axes: one draw for each image that is still attacked; else one for all."""
        if len(shape) < 4:
            return super().random_choice(shape)
        own = [torch.rand(shape[1:], generator=self.generators[i]) for i in self.alive]
        return (2 * torch.stack(own) - 1).sign().to(self.device)

    def margin_and_loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The search goes on with the images whose margin is positive."""
        self.bridge.rows = torch.tensor(self.alive, dtype=torch.int64, device=x.device)
        margin, _ = super().margin_and_loss(x, y)
        margin = margin.nan_to_num(nan=torch.finfo(margin.dtype).min)
        self.alive = [i for i, correct in zip(self.alive, (margin > 0).tolist(), strict=True) if correct]
        return margin, margin.clone()


@dataclass(frozen=True, kw_only=True)
class AutoAttack(Steered):
    """APGD-CE, APGD-T, FAB-T and Square, in this order, each on what the ones before it left.

    With fewer than ten classes there are as many targets as wrong classes; APGD-T needs four classes. An image ends
    where it was fooled, else where the last attack ended.
    """

    STANDARD: ClassVar[dict[str, int]] = {"n_iter": 100, "targets": 9, "n_queries": 5000}

    n_iter: int = 100
    """Of APGD, one run each, and FAB."""
    targets: int = 9
    n_queries: int = 5000

    takes_start: ClassVar[bool] = False

    @property
    def is_standard(self) -> bool:
        """Whether the budgets are the standard ones, and the deployed predictor is seen; nothing else is called AA."""
        return self.steer == "deployed" and all(getattr(self, name) == value for name, value in self.STANDARD.items())

    @property
    def least_classes(self) -> int:
        """The most that one of the four needs."""
        return max(part.least_classes for part in self.parts)

    @property
    def name(self) -> str:
        """AA, or the budgets."""
        if self.is_standard:
            return "AA"
        steer = "" if self.steer == "deployed" else f", steer={self.steer}"
        return f"AutoAttack(n_iter={self.n_iter}, targets={self.targets}, n_queries={self.n_queries}{steer})"

    @property
    def parts(self) -> tuple[Attack, ...]:
        """The four attacks."""
        return (
            APGD(self.threat, seed=self.seed, loss="ce", n_iter=self.n_iter),
            APGD(self.threat, seed=self.seed, loss="dlr_targeted", n_iter=self.n_iter, targets=self.targets),
            FABT(self.threat, seed=self.seed, n_iter=self.n_iter, targets=self.targets),
            Square(self.threat, seed=self.seed, n_queries=self.n_queries),
        )

    def find(self, task: Task) -> Tensor:
        """Images leave at their first success, whatever `every_image` says: there is nothing left to find."""
        self._check_classes(task)
        images, rows = task.x.clone(), task.all_rows
        for part in self.parts:
            if len(rows) == 0:
                break
            images[rows] = part.contained(replace(task.part(rows), every_image=False))
            rows = rows[~fooled(task.deployed(images[rows], rows), task.y[rows])]
        return images

    def _check_classes(self, task: Task) -> None:
        """Whatever the first attack leaves for the second, which needs four."""
        oracle = task.oracle.for_rows(task.places[:1])
        classes = oracle.deployed(task.x[:1]).shape[1] if len(task) else self.least_classes
        if classes < self.least_classes:
            raise ValueError(
                f"AutoAttack's targeted DLR loss needs at least {self.least_classes} classes, the predictor has "
                f"{classes}: use APGD, FABT and Square one by one"
            )
