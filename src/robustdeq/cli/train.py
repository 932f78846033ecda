"""`robustdeq train`: train a model by a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console

from robustdeq.cli.clock import clock
from robustdeq.cli.progress import counting
from robustdeq.recipes import merge, parse_config, read_recipe
from robustdeq.training.signals import Interrupted
from robustdeq.training.trainer import Progress as Report
from robustdeq.training.trainer import Trainer


def run(
    *, recipe: str, out: Path, data_root: Path | None = None, device: str = "auto", overrides: dict[str, Any]
) -> int:
    """Train a model by a recipe; the same command goes on where an earlier one stopped.

    Args:
        recipe: A name that `robustdeq recipes` lists, or a YAML file.
        out: Folder of the run: weights in out/best and out/last, metrics.csv, run.json, TensorBoard logs.
        data_root: Where the data are (cifar10: the folder that holds cifar-10-batches-py or the official archive).
        device: auto, cpu, cuda, mps.
        overrides: Fields of the recipe to change.
    """
    config = parse_config(merge(read_recipe(recipe), overrides))
    console = Console(quiet=os.environ.get("RANK", "0") != "0")
    with counting(console) as count:

        def report(now: Report) -> None:
            validation = "" if now.robust is None else f"  val {now.clean:.1%} / pgd {now.robust:.1%}"
            validation += "" if now.inner is None else f" / inner {now.inner:.1%}"
            if now.warning is not None:
                console.print(f"step {now.step}: {now.warning}", soft_wrap=True, markup=False)
            count(f"loss {now.loss:.3f}{validation}  {now.rate:.0f} img/s, {ending(now)}", now.step, now.total)

        trainer = Trainer(config, out, data_root=data_root, device=device, report=report)
        try:
            best = trainer.fit()
        except Interrupted as stop:
            console.print(str(stop), soft_wrap=True, markup=False)
            return stop.code
    clean, robust = trainer.last_validation or (float("nan"), float("nan"))
    console.print(
        f"{best}: best PGD accuracy on held-out images {trainer.best:.1%} (last: clean {clean:.1%}, PGD {robust:.1%})",
        soft_wrap=True,
        markup=False,
    )
    return 0


def ending(now: Report) -> str:
    """When it ends; while pretraining, only when that does: what the later steps will cost is not known."""
    if now.phase != "pretrain":
        return f"{clock(now.remaining)} left"
    return f"pretraining ends in {clock(now.remaining)}" if now.remaining > 0 else "pretraining has ended"
