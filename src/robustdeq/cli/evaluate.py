"""`robustdeq evaluate`: attack a predictor by a suite, into a store."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from robustdeq.cli.arguments.defence_flags import DefenceFlags

if TYPE_CHECKING:
    from robustdeq.cli.arguments.checkpoint import Checkpoint
    from robustdeq.evaluation import Progress

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def run(
    ckpt: str,
    *,
    out: Path,
    suite: str = "quick",
    base: str | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    limit: int | None = None,
    eps: str | None = None,
    norm: Literal["Linf", "L2"] = "Linf",
    state: str | None = None,
    aware: bool = False,
    union: bool = False,
    budget: str | None = None,
    keep_images: bool = False,
    sources: list[Path] | None = None,
    seed: int = 0,
    batch_size: int = 100,
    shard_size: int = 500,
    device: str = "auto",
    as_json: bool = False,
    trust: bool = False,
    imports: str | None = None,
    command: Sequence[str] = (),
    **flags: Unpack[DefenceFlags],
) -> None:
    """Attack a predictor by a suite; the same command resumes an evaluation that was interrupted.

    Args:
        ckpt: A checkpoint folder, a shipped checkpoint's name, hf:user/name, or package.module:function that returns a
            predictor.
        out: Folder of the results.
        suite: quick, grid, autoattack, autoattack-carried, audit, benchmark, transfer, paper, table4, settings, or a
            YAML file of your own.
        base: Static base to compare with, given like CKPT; by default the model without its defence, if it has one.
        data: cifar10, digits or folder; by default what the checkpoint was trained on.
        data_root: Folder of the data; by default where the checkpoint was trained.
        limit: Attack only the first test images, this many.
        eps: Radius of the attacks, such as 8/255; by default what the checkpoint was trained for.
        norm: Norm of the radius.
        state: State that predicts, 1..N or final; by default 8, or the solver's last if it has fewer.
        aware: Also attack with gradients of the defended pass.
        union: Skip images that an attack has broken, cheapest attacks first: only the union, several times faster.
        budget: Stop after this time, such as 90s, 30m or 2h.
        keep_images: Store the adversarial images.
        sources: Other stores, whose kept images are shown to this predictor.
        seed: Seed of everything random.
        batch_size: Images attacked at a time; a kill loses at most one batch.
        shard_size: Images per shard, the unit of work that processes share and files hold.
        device: auto, cpu, cuda, mps.
        as_json: Print the result as JSON instead of a table; progress goes to standard error.
        trust: Run code outside robustdeq that the checkpoint names; not needed in the folder that it was trained in.
        imports: Module of your own to import first, such as one that registers models (several: separated by commas); a
            checkpoint may name it.
        command: The words of the command line, which the store keeps.
        **flags: Of the defence.
    """
    import robustdeq.evaluation
    from robustdeq.cli.arguments.checkpoint import budget_of, resolve
    from robustdeq.cli.arguments.deploy import deployed
    from robustdeq.host.references import import_modules

    seconds = None if budget is None else duration(budget)
    trusted = trust or import_modules(imports)
    checkpoint = resolve(ckpt, trusted)
    predictor = deployed(checkpoint.predictor, flags, checkpoint.eps, state)
    beside = None if base is None else deployed(resolve(base, trusted).predictor, {}, None, None)
    attack(
        robustdeq.evaluation.evaluate,
        checkpoint,
        predictor,
        data=data,
        data_root=data_root,
        threat=budget_of(checkpoint, eps, norm),
        device=device,
        as_json=as_json,
        command=command,
        suite=suite,
        out=out,
        base=beside,
        seed=seed,
        batch_size=batch_size,
        shard_size=shard_size,
        union=union,
        budget=seconds,
        limit=limit,
        keep_images=keep_images or None,
        aware=aware,
        sources=sources or (),
    )


def attack(
    measure: Callable[..., Any],
    checkpoint: Checkpoint,
    predictor: Any,
    *,
    data: str | None,
    data_root: Path | None,
    device: str,
    as_json: bool,
    command: Sequence[str],
    **options: Any,
) -> None:
    """Call `measure`, an entry point of robustdeq.evaluation, on the device with progress, and print the result."""
    from rich.console import Console
    from torch import nn

    from robustdeq.cli.arguments.checkpoint import data_root_of, dataset_of
    from robustdeq.cli.progress import counting
    from robustdeq.host.processes import launch
    from robustdeq.host.terminal import printable

    dataset = dataset_of(checkpoint, data)
    fabric = launch(device)
    for model in (predictor, options.get("base")):
        if isinstance(model, nn.Module):
            model.to(fabric.device)
    first = os.environ.get("RANK", "0") == "0"
    console = Console(quiet=not first, stderr=as_json)

    def show(words: str) -> None:
        console.print(printable(words), soft_wrap=True, highlight=False, markup=False)

    root = data_root_of(checkpoint, dataset, data_root, show)
    with counting(console) as count:
        result = measure(
            predictor,
            dataset,
            name=checkpoint.name,
            data_root=root,
            data_options=checkpoint.options_for(dataset),
            command=shlex.join(["robustdeq", *command]) if command else None,
            report=lambda now: count(describe(now), now.done, now.total),
            say=show,
            **options,
        )
    if not as_json:
        show(result.table())
    elif first:
        print(json.dumps(result.as_json(), indent=2, allow_nan=False))  # noqa: T201


def describe(now: Progress) -> str:
    """One line of progress."""
    from robustdeq.cli.progress import clock

    left = "" if now.remaining is None else f"  {clock(now.remaining)} left"
    return f"{now.doing}  robust in [{now.robust.low:.1%}, {now.robust.high:.1%}]  {now.rate:.1f} img/s{left}"


def duration(text: str) -> float:
    """Seconds of 90s, 30m, 2h, 1h30m, or a plain number."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+|\d+(\.\d+)?", text):
        raise ValueError(f"--budget must be a time such as 90s, 30m, 2h or 1h30m, got {text!r}")
    return sum(float(number) * UNITS.get(unit, 1) for number, unit in re.findall(r"([\d.]+)([smhd]?)", text))
