"""`robustdeq train`: train a model by a recipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from robustdeq.training import TrainConfig


def run(
    *,
    recipe: str | None = None,
    out: Path,
    data_root: Path | None = None,
    device: str = "auto",
    imports: str | None = None,
    overrides: Annotated[dict[str, Any], TrainConfig],
) -> None:
    """Train a model by a recipe; the same command resumes a run that was interrupted.

    Args:
        recipe: A name that `robustdeq recipes` lists, or a YAML file; by default one of TRADES for the data set that
            --data.name says: digits-nano-trades or cifar10-tiny-trades.
        out: Folder of the run: weights in out/best and out/last, metrics.csv, run.json, TensorBoard logs.
        data_root: Folder of the data (cifar10: the folder that holds cifar-10-batches-py or the official archive).
        device: auto, cpu, cuda, mps.
        imports: Module of your own to import first, such as one that registers models; several are separated by commas.
        overrides: Fields of the recipe to change.
    """
    from rich.console import Console

    from robustdeq.cli.progress import counting
    from robustdeq.host.references import import_modules
    from robustdeq.host.terminal import printable
    from robustdeq.recipes import default_recipe, parse_config, read_recipe, with_overrides
    from robustdeq.training.trainer import Progress, Trainer

    import_modules(imports)
    console = Console(quiet=os.environ.get("RANK", "0") != "0")
    if recipe is None:
        recipe = default_recipe(overrides)
        console.print(f"recipe {recipe}, because --recipe names no other", soft_wrap=True, markup=False)
    config = parse_config(with_overrides(read_recipe(recipe), overrides))
    with counting(console) as count:

        def report(now: Progress) -> None:
            seen = now.validation
            validation = "" if seen is None else f"  val {seen.clean:.1%} / pgd {seen.pgd:.1%}"
            validation += "" if seen is None or seen.inner is None else f" / inner {seen.inner:.1%}"
            if now.warning is not None:
                console.print(f"step {now.step}: {now.warning}", soft_wrap=True, markup=False)
            ending = describe_end(now.phase, now.remaining)
            count(f"loss {now.loss:.3f}{validation}  {now.rate:.0f} img/s, {ending}", now.step, now.total)

        trainer = Trainer(config, out, data_root=data_root, device=device, report=report)
        best = trainer.fit()
    last = trainer.validation
    console.print(
        f"{printable(best)}: best PGD accuracy on held-out images {trainer.best:.1%}"
        + ("" if last is None else f" (last: clean {last.clean:.1%}, PGD {last.pgd:.1%})"),
        soft_wrap=True,
        markup=False,
    )


def describe_end(phase: str, remaining: float) -> str:
    """When the run ends; during pretraining only when that ends, because the cost of later steps is not known yet."""
    from robustdeq.cli.progress import clock

    if phase != "pretrain":
        return f"{clock(remaining)} left"
    return f"pretraining ends in {clock(remaining)}" if remaining > 0 else "pretraining has ended"
