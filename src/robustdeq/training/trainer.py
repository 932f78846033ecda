"""The training loop: resumable at any step, on one process or many."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch._functorch.config as torch_functorch
from torch import Tensor, nn

from robustdeq.data import RandomCropFlip, batch_at, load_dataset, steps_per_epoch
from robustdeq.host.files import held, remove_stale
from robustdeq.host.interrupts import Interrupted, remembering
from robustdeq.host.processes import launch
from robustdeq.host.provenance import provenance
from robustdeq.models import DEQ
from robustdeq.training.assembly import build_model, given, new_average, training_metadata, try_out, update_average
from robustdeq.training.checkpoint import (
    AFRESH,
    STATE,
    TrainingState,
    as_json,
    check_same_run,
    load_state,
    record_start,
    save_state,
)
from robustdeq.training.config import TrainConfig
from robustdeq.training.draws import Draws
from robustdeq.training.inner import Carried
from robustdeq.training.logs import Log
from robustdeq.training.objectives import Objective
from robustdeq.training.pace import Pace
from robustdeq.training.step import TrainStep
from robustdeq.training.validation import Validation, correct_counts, validation_attacks, weakness

MAX_SKIPPED = 10
"""Batches in a row that a rollback may skip before the run is given up."""


Row = dict[str, Any]
"""The metrics of a step, by the names of metrics.csv."""


class NonFiniteLossError(RuntimeError):
    """Training met a loss that is NaN or infinite."""


@dataclass
class Progress:
    """Progress of a training, reported after every step."""

    step: int
    total: int
    phase: str
    """pretrain, train or skipped."""
    loss: float
    rate: float
    """Images per second over the last steps, without validations."""
    remaining: float
    """Estimated seconds until the phase ends."""
    validation: Validation | None
    """The last validation."""
    warning: str | None = None
    """Words of warning, at a validation that shows the inner attack to be too weak."""


class Trainer:
    """One training run in one folder; a trainer with the same configuration and folder resumes it.

    Args:
        config: The configuration, such as `robustdeq.load_recipe("digits-nano-trades", seed=1)`.
        out: Folder of the run: weights in out/best and out/last, metrics.csv, run.json, TensorBoard logs.
        data_root: Folder of the data.
        device: auto, cpu, cuda or mps.
        report: Progress callback, called after every step on process 0.
        on_step: Called after every step, on process 0, with the step's row of metrics.csv as a dictionary (step, epoch,
            phase, lr, loss and its parts, train_accuracy), for wandb and the like.
        on_validation: Called after every validation in the same way; the row has validation_clean, validation_pgd and
            validation_inner too.
        objective: An objective of your own instead of the configuration's.
        optimizer: Makes the optimizer from the parameters, instead of Adam; the schedule sets its learning rate.
    """

    def __init__(
        self,
        config: TrainConfig,
        out: str | Path,
        *,
        data_root: str | Path | None = None,
        device: str = "auto",
        report: Callable[[Progress], None] | None = None,
        on_step: Callable[[Row], None] | None = None,
        on_validation: Callable[[Row], None] | None = None,
        objective: Objective | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] | None = None,
    ) -> None:
        self.config = config
        self.out = Path(out)
        self.report = report or (lambda progress: None)
        self.on_step, self.on_validation = on_step, on_validation
        self.data_root = data_root
        self.fabric = launch(device, config.precision)
        self.rank, self.world_size = self.fabric.global_rank, self.fabric.world_size
        self.data = load_dataset(config.data.name, data_root, held_out=config.data.held_out, **config.data.options)
        self.data_digest = f"{self.data.train.digest()} {self.data.validation.digest()}"
        self.augment = RandomCropFlip(padding=config.data.padding, flip=config.data.flip)
        self.train_images = self.data.train.to(self.fabric.device)
        if not len(self.data.validation):
            raise ValueError("no held-out images to choose the checkpoint by: data.held_out must be >= 1")
        self.validation_images = self.data.validation.subset(slice(0, config.validation.images)).to(self.fabric.device)
        self.dtype = torch.float64 if config.precision == "64-true" else torch.float32
        if config.schedule.batch_size % self.world_size:
            raise ValueError(
                f"a batch of {config.schedule.batch_size} images cannot be shared equally by {self.world_size} "
                f"processes: schedule.batch_size must be a multiple of {self.world_size}"
            )

        self.model = build_model(config, self.data)
        try_out(config.model.name, self.model, self.data, self.dtype)
        self.optimizer: Any = (
            torch.optim.Adam(self.model.parameters(), lr=config.schedule.lr, weight_decay=config.schedule.weight_decay)
            if optimizer is None
            else optimizer(self.model.parameters())
        )
        self.objective = config.objective.build() if objective is None else objective
        self._own_objective = objective
        self.described = as_json(config) | given(objective, None if optimizer is None else self.optimizer)
        step = TrainStep(self.model, self.objective, config.schedule.pretrain_layers)
        self.step_module: Any
        self.step_module, self.optimizer = self.fabric.setup(step, self.optimizer)
        self.average = new_average(config, self.data, self.model, self.fabric.device)
        if config.compile:
            # a carried inner attack walks back through one graph twice, which compiled code refuses by default
            torch_functorch.donated_buffer = not isinstance(getattr(self.objective, "inner", None), Carried)
            for model in (self.model, self.average):
                if model is not None:
                    model.compile()

        self.steps_per_epoch = steps_per_epoch(len(self.data.train), config.schedule.batch_size)
        self.schedule_steps = config.schedule.steps or self.steps_per_epoch * config.schedule.epochs
        limit = config.schedule.max_steps
        self.total = self.schedule_steps if limit is None else min(limit, self.schedule_steps)
        self.step = 0
        self.best = -1.0
        self.validation: Validation | None = None
        """The last one."""
        self._skipped = 0

    def fit(self) -> Path:
        """Train to the end; returns the folder of the best checkpoint."""
        with held(self.out) if self.rank == 0 else nullcontext():
            self._begin()
            log = Log(self.out, resume_step=self.step) if self.rank == 0 else None
            try:
                with remembering() as signals:
                    self._loop(log, signals)
            finally:
                if log is not None:
                    log.close()
        return self.out / "best"

    def _loop(self, log: Log | None, signals: list[int]) -> None:
        every = self.config.validation.every or self.steps_per_epoch
        pace = Pace()
        while self.step < self.total:
            began = time.monotonic()
            losses, lr, phase = self._train_step()
            self.step += 1
            if phase != "skipped":
                pace.stepped(phase, time.monotonic() - began)
            at_end = self.step == self.total
            validated = self.step % every == 0 or at_end
            if validated:
                began = time.monotonic()
                self._validate()
                pace.validated(time.monotonic() - began)
            self._write(log, losses, lr, phase, pace, validated)
            if self.step % self.config.checkpoint_every == 0 or at_end:
                self._save()
            if not at_end:
                self._stop_if_asked(signals[0] if signals else 0)

    def _train_step(self) -> tuple[dict[str, float], float, str]:
        schedule = self.config.schedule
        lr = schedule.learning_rate(self.step, self.schedule_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        phase = "pretrain" if self.step < schedule.pretrain_steps else "train"
        draws = Draws(self.config.seed, self.step, self.rank, self.world_size)
        x, y = self._batch(draws)
        self.step_module.train()
        self.optimizer.zero_grad()
        with torch.random.fork_rng(devices=[]):  # a user's own dropout draws from the global generator
            torch.random.manual_seed(draws.own_generator("global").initial_seed())
            result = self.step_module(x, y, astuple(draws), phase, self._penalty(phase, draws))
        losses = {"loss": result.total, **result.parts}
        losses["train_accuracy"] = (result.logits.argmax(1) == y).float().mean()
        means = self._reduce(torch.stack([v.detach().float() for v in losses.values()]), "mean")
        values = dict(zip(losses, means.tolist(), strict=True))
        if not math.isfinite(values["loss"]):
            self._nonfinite(f"the loss is {values['loss']}")
            return values, lr, "skipped"
        self.fabric.backward(result.total)
        if not self._gradients_are_finite():
            self._nonfinite(f"the gradient is not finite (the loss is {values['loss']})")
            return values, lr, "skipped"
        self._skipped = 0
        self.optimizer.step()
        self._share_statistics()
        if self.average is not None and schedule.ema is not None:
            update_average(self.average, self.model, schedule.ema, self.step)
        return values, lr, phase

    def _batch(self, draws: Draws) -> tuple[Tensor, Tensor]:
        """This rank's share of the joint batch, augmented by its share of the joint draw."""
        batch_size = self.config.schedule.batch_size
        share = batch_size // self.world_size
        own = slice(self.rank * share, (self.rank + 1) * share)
        indices = batch_at(len(self.train_images), batch_size, self.step, seed=self.config.seed)[own]
        indices = indices.to(self.fabric.device)
        changes = self.augment.draw(batch_size, draws.generator("augment"))[own]
        pixels = self.augment.apply(self.train_images.pixels[indices], changes)
        return pixels.to(self.dtype) / 255, self.train_images.labels[indices]

    def _penalty(self, phase: str, draws: Draws) -> float:
        """Weight of this step's Jacobian penalty; 0 for none."""
        jacobian = self.config.jacobian
        on = phase == "train" and jacobian.weight > 0 and self.step // self.steps_per_epoch < jacobian.until_epoch
        if on and isinstance(self.model, DEQ) and draws.chance("jacobian", jacobian.probability):
            return jacobian.weight
        return 0.0

    def _gradients_are_finite(self) -> bool:
        """Whether all gradients are finite; the same on all ranks, which share their gradients."""
        norms = torch._foreach_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return bool(torch.stack(norms).isfinite().all())

    @torch.no_grad()
    def _share_statistics(self) -> None:
        """Give all ranks the mean of their BatchNorm statistics, so that they validate and average one model."""
        buffers = [b for b in self.model.buffers() if b.is_floating_point()]
        if self.world_size == 1 or not buffers:
            return
        mean = self._reduce(torch.cat([b.flatten() for b in buffers]), "mean")
        for buffer, part in zip(buffers, mean.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(part.view_as(buffer))

    def _nonfinite(self, what: str) -> None:
        state = load_state(self.out)
        where = f"step {self.step + 1}: {what}"
        good = f"the last good checkpoint is step {state.step} in {self.out}" if state else "there is no checkpoint yet"
        if self.config.on_nonfinite == "stop" or state is None:
            raise NonFiniteLossError(
                f"{where}; {good}. The same command with --on_nonfinite rollback skips such batches; "
                "a lower schedule.lr needs another --out"
            )
        self._skipped += 1
        if self._skipped > MAX_SKIPPED:
            raise NonFiniteLossError(f"{where}, after {MAX_SKIPPED} batches skipped for the same reason; {good}")
        self._restore_weights(state)

    def _validate(self) -> None:
        config = self.config
        images = self.validation_images
        share = math.ceil(len(images) / self.world_size)
        begin = self.rank * share
        own = images.subset(slice(begin, begin + share))
        model, x, size = self.evaluated_model(), own.pixels01(dtype=self.dtype), config.validation.batch_size
        attacks = validation_attacks(config, model, self.objective, self.step)
        counts = correct_counts(model, x, own.labels, list(attacks.values()), batch_size=size, first=begin)
        sums = self._reduce(torch.tensor(counts), "sum").tolist()
        shares = {name: count / len(images) for name, count in zip(("clean", *attacks), sums, strict=True)}
        self.validation = Validation(step=self.step, **shares)
        if self.validation.pgd > self.best:
            self.best = self.validation.pgd
            self._export("best")

    def evaluated_model(self) -> nn.Module:
        """The model that is validated and saved: the average, if weights are averaged."""
        return self.model if self.average is None else self.average

    def _write(
        self, log: Log | None, losses: dict[str, float], lr: float, phase: str, pace: Pace, validated: bool
    ) -> None:
        if log is None:
            return
        row: Row = {"step": self.step, "epoch": (self.step - 1) // self.steps_per_epoch, "phase": phase}
        row |= {"lr": lr, **losses}
        seen, warning = self.validation, None
        if validated and seen is not None:
            row |= {"validation_clean": seen.clean, "validation_pgd": seen.pgd, "validation_inner": seen.inner}
            if phase != "pretrain" and seen.inner is not None:
                carried = isinstance(getattr(self.objective, "inner", None), Carried)
                standard = seen.pgd if seen.standard is None else seen.standard
                warning = weakness(seen.inner, standard, len(self.validation_images), carried=carried)
        rate = self.config.schedule.batch_size / max(pace.step(), 1e-9)
        log.write(row, rate=rate)
        if self.on_step is not None:
            self.on_step(row)
        if validated and self.on_validation is not None:
            self.on_validation(row)
        left, loss = self._remaining(pace, phase), losses["loss"]
        self.report(Progress(self.step, self.total, phase, loss, rate, left, seen, warning))

    def _remaining(self, pace: Pace, phase: str) -> float:
        """Estimated seconds until the phase ends; the cost of later phases is not known."""
        end = min(self.total, self.config.schedule.pretrain_steps) if phase == "pretrain" else self.total
        every = self.config.validation.every or self.steps_per_epoch
        validations = math.ceil(end / every) if end == self.total else end // every
        return pace.remaining(end - self.step, validations - self.step // every if self.step < end else 0)

    def _begin(self) -> None:
        """Resume from the folder's state, if there is one; refuse a folder of another configuration."""
        if self.rank == 0:
            remove_stale(self.out)
        state = load_state(self.out)
        if state is not None:
            check_same_run(self.out, state, self.described, self.data, self.data_digest)
            self._restore(state)
        if self._reduce(torch.tensor(self.step), "max") != self._reduce(torch.tensor(self.step), "min"):
            raise ValueError(f"the processes see different states of the run: {self.out} must be a folder all share")
        if self.rank == 0 and self.step < self.total:
            record_start(self.out, self.described, provenance(self.world_size), None if state is None else self.step)

    def _restore(self, state: TrainingState) -> None:
        self._restore_weights(state)
        self.best, self.step = state.best, state.step
        if state.validation is not None:
            clean, pgd = state.validation
            at = state.step if state.validated_at is None else state.validated_at  # early versions did not say when
            self.validation = Validation(step=at, clean=clean, pgd=pgd, inner=state.inner, standard=state.standard)

    def _restore_weights(self, state: TrainingState) -> None:
        try:
            self.model.load_state_dict(state.model)
            self.optimizer.load_state_dict(state.optimizer)
            if self.average is not None and state.average is not None:
                self.average.load_state_dict(state.average)
        except Exception as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"{self.out / STATE} does not fit this run ({type(error).__name__}: {said}); {AFRESH}"
            ) from error

    def _save(self) -> None:
        seen = self.validation
        if self.rank == 0:
            save_state(
                self.out,
                TrainingState(
                    step=self.step,
                    model=self.model.state_dict(),
                    optimizer=self.optimizer.state_dict(),
                    average=None if self.average is None else self.average.state_dict(),
                    best=self.best,
                    validation=None if seen is None else (seen.clean, seen.pgd),
                    inner=None if seen is None else seen.inner,
                    standard=None if seen is None else seen.standard,
                    validated_at=None if seen is None else seen.step,
                    config=self.described,
                    data=self.data_digest,
                ),
            )
        self._export("last")

    def _export(self, name: str) -> None:
        """Save the weights as a checkpoint folder of this name."""
        if self.rank == 0:
            model: Any = self.evaluated_model()
            seen = self.validation
            model.metadata = {
                **training_metadata(self.config, self.data, self._own_objective),
                **({} if self.data_root is None else {"data_root": str(self.data_root)}),
                "step": self.step,
                "validation_step": None if seen is None else seen.step,
                "validation_clean": None if seen is None else seen.clean,
                "validation_pgd": None if seen is None else seen.pgd,
                "validation_inner": None if seen is None else seen.inner,
            }
            model.save_pretrained(self.out / name)
        self.fabric.barrier()

    def _reduce(self, value: Tensor, how: str) -> Tensor:
        """The sum, mean, maximum or minimum over all ranks."""
        return cast("Tensor", self.fabric.all_reduce(value.to(self.fabric.device), reduce_op=how))

    def _stop_if_asked(self, received: int) -> None:
        """Save and stop if any rank received a signal; all ranks stop at the same step."""
        if asked := int(self._reduce(torch.tensor(received), "max")):
            self._save()
            raise Interrupted(asked, f"saved at step {self.step} of {self.total}")
