"""FAB-T and Square, as pyautoattack computes them, and the AutoAttack ensemble (Croce & Hein 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Tensor
from typing_extensions import override

from robustdeq.attacks.apgd import APGD
from robustdeq.attacks.base import Attack, Steered
from robustdeq.attacks.oracles import Oracle
from robustdeq.attacks.task import Task, deployed_values, fooled, generator_for
from robustdeq.threat import L2, Linf, Threat


@dataclass(frozen=True, kw_only=True)
class FABT(Steered):
    """Targeted fast adaptive boundary attack: searches the nearest adversarial point for each target in turn.

    An image ends at the first such point that fools the deployed predictor inside the ball, or else at the nearest
    point found, projected into the ball. It stays as received if no point was found or if it is misclassified anyway.
    Nothing is random. The library computes in float32.
    """

    n_iter: int = 100
    targets: int = 9
    """Number of target classes, the likeliest wrong class first; at most all wrong classes."""

    name: ClassVar[str] = "FAB-T"
    takes_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.n_iter, self.targets) < 1:
            raise ValueError(f"n_iter and targets must be at least 1, got {self.n_iter} and {self.targets}")

    @override
    def find(self, task: Task) -> Tensor:
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
        """The nearest adversarial point of each image and its distance; the image and infinity if none was found."""
        x = task.x[rows]
        library = FABAttack_PT(
            _LibraryModel(task, rows),
            norm=_norm_name(self.threat),
            n_iter=self.n_iter,
            eps=self.threat.eps,
            device=x.device,
        )
        library.target_class = target + 2  # the library counts from the likeliest class, the label, as 1
        with torch.no_grad():
            point = library.attack_single_run(x, task.y[rows], is_targeted=True).to(x.dtype)
        point = torch.where(point == x.float().to(x.dtype), x, point)
        distance = self.threat.distance(point, x)
        unusable = ~distance.isfinite() | (distance == 0)
        return point, torch.where(unusable, torch.inf, distance)


@dataclass(frozen=True, kw_only=True)
class Square(Steered):
    """Random search with squares on the margin, without gradients.

    An image ends at the first point that fools the deployed predictor, or else at the point of lowest margin. All
    images of a seed share the positions of the squares; random signs are drawn for each image separately.
    """

    n_queries: int = 5000

    name: ClassVar[str] = "Square"
    takes_start: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_queries < 1:
            raise ValueError(f"n_queries must be at least 1, got {self.n_queries}")

    @override
    def find(self, task: Task) -> Tensor:
        if task.x.ndim != 4 or min(task.x.shape[2:]) < 5:
            raise ValueError(f"Square needs images (batch, channels, >= 5, >= 5), got {tuple(task.x.shape)}")
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(generator_for(self.seed, "Square", 0, "shared").initial_seed())
            return _SquareRun(self, task).attack_single_run(task.x, task.y)[1]


class _SquareRun(SquareAttack):  # type: ignore[misc]  # the library is not annotated
    """The library's search, with batch-independent random numbers, and with NaN logits as a success."""

    def __init__(self, attack: Square, task: Task) -> None:
        self.model, self.alive = _LibraryModel(task, task.all_rows), list(range(len(task)))
        super().__init__(
            self.model,
            norm=_norm_name(attack.threat),
            n_queries=attack.n_queries,
            eps=attack.threat.eps,
            resc_schedule=False,
            device=task.x.device,
        )
        self.init_hyperparam(task.x)
        self.generators = [generator_for(attack.seed, "Square", 0, key) for key in task.keys]

    @override
    def random_choice(self, shape: list[int]) -> Tensor:
        """Random signs: with four axes, one draw for each image still attacked; otherwise one draw for all images."""
        if len(shape) < 4:
            return super().random_choice(shape)
        own = [torch.rand(shape[1:], generator=self.generators[i]) for i in self.alive]
        return (2 * torch.stack(own) - 1).sign().to(self.device)

    @override
    def margin_and_loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The margin twice; the search continues with the images whose margin is positive."""
        self.model.rows = torch.tensor(self.alive, dtype=torch.int64, device=x.device)
        margin, _ = super().margin_and_loss(x, y)
        margin = margin.nan_to_num(nan=torch.finfo(margin.dtype).min)
        self.alive = [i for i, correct in zip(self.alive, (margin > 0).tolist(), strict=True) if correct]
        return margin, margin.clone()


@dataclass(frozen=True, kw_only=True)
class AutoAttack(Steered):
    """APGD-CE, APGD-T, FAB-T and Square in this order, each on the images that the earlier ones did not fool.

    An image ends where the predictor was fooled, or else where the last attack ended. With fewer than ten classes there
    are as many targets as wrong classes; APGD-T needs four classes.
    """

    STANDARD: ClassVar[dict[str, int]] = {"n_iter": 100, "targets": 9, "n_queries": 5000}

    n_iter: int = 100
    """Number of steps of each APGD run and of FAB-T."""
    targets: int = 9
    n_queries: int = 5000

    takes_start: ClassVar[bool] = False

    @property
    def is_standard(self) -> bool:
        """Whether the budgets are the standard ones and the deployed predictor steers; only then is it called AA."""
        return self.steer == "deployed" and all(getattr(self, name) == value for name, value in self.STANDARD.items())

    @property
    @override
    def least_classes(self) -> int:
        return max(part.least_classes for part in self.parts)

    @property
    @override
    def name(self) -> str:
        if self.is_standard:
            return "AA"
        steer = "" if self.steer == "deployed" else f", steer={self.steer}"
        return f"AutoAttack(n_iter={self.n_iter}, targets={self.targets}, n_queries={self.n_queries}{steer})"

    @property
    def parts(self) -> tuple[Attack, ...]:
        """The four attacks in order."""
        return (
            APGD(self.threat, seed=self.seed, loss="ce", n_iter=self.n_iter),
            APGD(self.threat, seed=self.seed, loss="dlr_targeted", n_iter=self.n_iter, targets=self.targets),
            FABT(self.threat, seed=self.seed, n_iter=self.n_iter, targets=self.targets),
            Square(self.threat, seed=self.seed, n_queries=self.n_queries),
        )

    @override
    def find(self, task: Task) -> Tensor:
        """Images leave at their first success even with `every_image`: there is nothing left to find."""
        classes = task.oracle.for_rows(task.places[:1]).deployed(task.x[:1]).shape[1]
        if classes < self.least_classes:  # fail at once, even if APGD-CE would leave APGD-T nothing to do
            raise ValueError(
                f"AutoAttack's targeted DLR loss needs at least {self.least_classes} classes, the predictor has "
                f"{classes}: use APGD, FABT and Square one by one"
            )
        images, rows = task.x.clone(), task.all_rows
        for part in self.parts:
            if len(rows) == 0:
                break
            images[rows] = part.contained(replace(task.part(rows), every_image=False))
            rows = rows[~fooled(task.deployed(images[rows], rows), task.y[rows])]
        return images


class _LibraryModel:
    """An oracle as pyautoattack expects its model: float32 in and out, any batch size, gradients for the input only.

    It shows the deployed predictor's logits with the surrogate's gradient; each pass counts for the images in `rows`.
    """

    def __init__(self, task: Task, rows: Tensor) -> None:
        self.task, self.rows, self.classes = task, rows, 0
        self.oracle = deployed_values(task.oracle)

    def __call__(self, x: Tensor) -> Tensor:
        """Logits in a new tensor, which the caller may overwrite."""
        if len(x) == 0:  # Square asks for the images not fooled yet, even if there are none
            return x.new_zeros(0, self.classes, dtype=torch.float32)
        self.task.count(self.rows)
        logits: Tensor = _InputOnly.apply(x, self.oracle, self.task.x.dtype)
        self.classes = logits.shape[1]
        return logits


class _InputOnly(torch.autograd.Function):
    """oracle(x) for libraries that call `backward()`: parameters get no gradient, and x gets only finite ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, oracle: Oracle, dtype: torch.dtype) -> Tensor:
        if not ctx.needs_input_grad[0]:
            return oracle.deployed(x.to(dtype)).float().clone()
        ctx.x = x.detach().to(dtype).requires_grad_()
        with torch.enable_grad():
            ctx.logits = oracle(ctx.x)
        return ctx.logits.detach().float().clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = torch.autograd.grad(ctx.logits, ctx.x, grad.to(ctx.logits.dtype))
        return torch.where(gradient.isfinite(), gradient, 0).float(), None, None


def _norm_name(threat: Threat) -> str:
    """The library's name of the threat's norm."""
    if not isinstance(threat, (Linf, L2)):
        raise ValueError(f"FAB-T and Square know Linf and L2, got {threat}")
    return "Linf" if isinstance(threat, Linf) else "L2"
