"""The configuration of a training run: typed, every field with its help, read from a recipe and from flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import robustdeq.training
from robustdeq.threat import Budget, number


def _at_least(low: int, section: Any, *names: str) -> None:
    """Refuse values that would fail, or do nothing, in the middle of a run."""
    for name in names:
        value = getattr(section, name)
        if value is not None and not low <= value < math.inf:
            raise ValueError(f"{name} must be >= {low}, got {value}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model that is trained."""

    name: str = "mdeq-tiny"
    """One of robustdeq.list_models(), or package.module:name, a function of your own that builds it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options that differ from the named model's defaults, e.g. {dropout: 0.1}."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data that the model is trained on."""

    name: Literal["cifar10", "digits", "folder"] = "cifar10"
    """cifar10, digits (embedded) or folder (your own images)."""
    held_out: int | None = None
    """Number of training images held out to choose the checkpoint on; the data set's own default if not given."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the data set, e.g. {size: 32} to resize a folder's images."""
    padding: int = 4
    """Random crop after padding by this many pixels; 0 for none."""
    flip: bool = True
    """Random horizontal flip."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The loss that training minimises, and its inner attack."""

    kind: Literal["standard", "pgdat", "trades"] = "trades"
    """Cross-entropy on clean images, PGD adversarial training, or TRADES."""
    eps: Budget = "8/255"
    """L-infinity radius of the inner attack."""
    steps: int = 10
    """Steps of the inner attack."""
    step_size: Budget = "2/255"
    """Step size of the inner attack."""
    beta: float = 6.0
    """Weight of the KL term of TRADES."""
    states: Literal["final", "random"] = "final"
    """The state that each forward pass reads: the solver's result, or a random intermediate state (Sec. 3.3)."""
    variant: Literal["paper", "released"] = "paper"
    """Which random state is read: z^[t] itself, or the lowest-residual iterate of the first t."""
    clean_target: Literal["once", "redrawn"] = "once"
    """TRADES with random states: the inner attack's clean target once per batch, or at each step (as released)."""
    inner: Literal["cold", "carried"] = "cold"
    """Gradients of the inner attack: every step solves from zero, or carries state and adjoint along (much cheaper)."""
    inner_first: int = 4
    """Carried: solver steps at the first inner step; with random states they are drawn from 1..N instead."""
    inner_iterations: int = 1
    """Carried: iterations of state and adjoint per inner step."""
    inner_damping: float = 0.5
    """Carried: weight of f in an iteration."""
    inner_extra: int = 2
    """Carried: additional iterations at the first inner step."""
    inner_handed_on: bool = False
    """Carried, final states: the loss's attacked pass takes inner_first solver steps from the attack's last state."""
    unroll: int | None = None
    """Phantom steps of the loss's own passes; the model's own number if not given."""
    label_smoothing: float = 0.0
    """Share of the cross-entropy's target that is spread evenly over all classes; not in pretraining."""

    def __post_init__(self) -> None:
        _at_least(0, self, "steps", "beta")
        for budget in (self.eps, self.step_size):
            if not number(budget) >= 0:
                raise ValueError(f"eps and step_size must be >= 0, got {budget}")
        _at_least(1, self, "inner_first", "inner_iterations")
        _at_least(0, self, "inner_extra")
        if not 0 < self.inner_damping <= 1:
            raise ValueError(f"inner_damping must lie in (0, 1], got {self.inner_damping}")
        if self.inner_handed_on and self.states == "random":
            raise ValueError("inner_handed_on needs states: final, because a pass at a random depth starts from zero")

    def build(self) -> robustdeq.training.Objective:
        """The objective."""
        from robustdeq.threat import Linf  # these need torch, which `robustdeq train --help` does not wait for
        from robustdeq.training.objectives import PGDAT, TRADES, Standard
        from robustdeq.training.states import Final, RandomState

        common: dict[str, Any] = {
            "states": RandomState(self.variant) if self.states == "random" else Final(),
            "label_smoothing": self.label_smoothing,
            "unroll": self.unroll,
        }
        if self.kind == "standard":
            return Standard(**common)
        attack: dict[str, Any] = {
            "threat": Linf(number(self.eps)),
            "steps": self.steps,
            "step_size": number(self.step_size),
            "inner": self._inner(),
        }
        if self.kind == "pgdat":
            return PGDAT(**common, **attack)
        return TRADES(beta=self.beta, clean_target=self.clean_target, **common, **attack)

    def _inner(self) -> robustdeq.training.InnerPolicy:
        from robustdeq.training.inner import Carried, Cold

        if self.inner == "cold":
            return Cold()
        return Carried(
            first=self.inner_first,
            iterations=self.inner_iterations,
            damping=self.inner_damping,
            extra=self.inner_extra,
            handed_on=self.inner_handed_on,
        )


@dataclass(frozen=True, kw_only=True)
class JacobianConfig:
    """The Jacobian penalty, on a random share of the steps after pretraining."""

    weight: float = 0.0
    """Weight of the penalty, 0 for none; the paper has 2.0 for PGD-AT, the released TRADES configuration 0.4."""
    probability: float = 0.02
    """Share of the steps that have the penalty."""
    until_epoch: int = 90
    """Epoch from which on there is no penalty."""

    def __post_init__(self) -> None:
        _at_least(0, self, "weight")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must lie in [0, 1], got {self.probability}")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How long and how fast: Adam, with a learning rate that changes at every step."""

    kind: Literal["cosine", "onecycle"] = "cosine"
    """After the warm-up, half a cosine or a straight line; onecycle warms up over 2/5 of all steps if not told."""
    epochs: int = 10
    """Passes over the training set, pretraining included."""
    steps: int | None = None
    """Length of the schedule in steps, instead of `epochs`."""
    max_steps: int | None = None
    """Stop after this many steps if that is earlier; the learning rate still follows the whole schedule."""
    batch_size: int = 96
    """Images per step over all processes."""
    lr: float = 1e-3
    """Peak learning rate."""
    final_lr: float = 1e-6
    """Learning rate at the end of the schedule."""
    warmup_steps: int = 0
    """Steps of linear warm-up."""
    weight_decay: float = 0.0
    """Weight decay of Adam; the paper reports that 5e-4 ends in NaN."""
    pretrain_steps: int = 0
    """Number of first steps on clean images with the weight-tied network of `pretrain_layers` layers."""
    pretrain_layers: int = 8
    """Applications of f in the weight-tied network."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights; if given, the average is validated and saved."""

    def __post_init__(self) -> None:
        _at_least(1, self, "epochs", "steps", "max_steps", "batch_size", "pretrain_layers")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError(f"ema must lie in [0, 1), got {self.ema}")
        _at_least(0, self, "lr", "final_lr", "warmup_steps", "weight_decay", "pretrain_steps")

    def learning_rate(self, step: int, total: int) -> float:
        """The rate of a step, counted from 0, of `total` steps."""
        onecycle = self.kind == "onecycle"
        warmup = self.warmup_steps or (2 * total // 5 if onecycle else 0)
        if step < warmup:
            return self.lr * (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total - warmup))
        if onecycle:
            return self.lr + (self.final_lr - self.lr) * progress
        return self.final_lr + (self.lr - self.final_lr) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """Choosing the checkpoint on held-out images, by PGD accuracy."""

    every: int | None = None
    """Steps between validations; once per epoch if not given."""
    images: int | None = None
    """Number of held-out images; all if not given."""
    steps: int = 10
    """Number of PGD steps."""
    step_size: Budget | None = None
    """Step size of PGD; a quarter of objective.eps if not given."""
    batch_size: int = 250
    """Images per batch."""

    def __post_init__(self) -> None:
        _at_least(1, self, "every", "images", "steps", "batch_size")
        if self.step_size is not None:
            number(self.step_size)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run."""

    description: str = ""
    """Purpose and cost of the recipe."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    jacobian: JacobianConfig = field(default_factory=JacobianConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    seed: int = 0
    """Seed of everything random."""
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"
    """lightning-fabric's precision."""
    compile: bool = False
    """torch.compile the model: minutes of compiling at the start, then faster steps; needs a C++ compiler on CPUs."""
    checkpoint_every: int = 100
    """Steps between checkpoints to resume from."""
    on_nonfinite: Literal["stop", "rollback"] = "stop"
    """What to do at a non-finite loss or gradient: stop with a message, or return to the last checkpoint (also one that
    an interruption saved) and skip the batch."""

    def __post_init__(self) -> None:
        _at_least(1, self, "checkpoint_every")
        _at_least(0, self, "seed")
