"""`robustdeq evaluate`: attack a predictor by a suite, into a store."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from robustdeq.cli.defence_flags import DefenceFlags

if TYPE_CHECKING:
    import robustdeq.evaluation

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
    from rich.console import Console
    from torch import nn

    import robustdeq.evaluation
    from robustdeq.cli.checkpoints import budget_of, data_root_of, dataset_of, defence_settings, deploy, resolve
    from robustdeq.cli.progress import counting
    from robustdeq.host.processes import launch
    from robustdeq.host.references import import_modules
    from robustdeq.host.terminal import printable

    seconds = None if budget is None else duration(budget)
    checkpoint = resolve(ckpt, trust or import_modules(imports))
    settings = defence_settings(flags, checkpoint.eps)
    predictor = deploy(checkpoint.predictor, defence=settings, state=state)
    beside = None
    if base is not None:
        beside = deploy(resolve(base, trust or import_modules(imports)).predictor, defence=None, state=None)
    dataset, threat = dataset_of(checkpoint, data), budget_of(checkpoint, eps, norm)
    fabric = launch(device)
    if isinstance(predictor, nn.Module):
        predictor = predictor.to(fabric.device)
    if isinstance(beside, nn.Module):
        beside = beside.to(fabric.device)
    first = os.environ.get("RANK", "0") == "0"
    console = Console(quiet=not first, stderr=as_json)

    def show(words: str) -> None:
        console.print(printable(words), soft_wrap=True, highlight=False, markup=False)

    root = data_root_of(checkpoint, dataset, data_root, show)
    with counting(console) as count:
        verdict = robustdeq.evaluation.evaluate(
            predictor,
            dataset,
            suite,
            out,
            base=beside,
            threat=threat,
            seed=seed,
            batch_size=batch_size,
            shard_size=shard_size,
            union=union,
            budget=seconds,
            limit=limit,
            keep_images=keep_images or None,
            aware=aware,
            sources=sources or (),
            name=ckpt,
            data_root=root,
            data_options=checkpoint.options_for(dataset),
            command=shlex.join(["robustdeq", *command]) if command else None,
            report=lambda now: count(describe(now), now.done, now.total),
            say=show,
        )
    if not as_json:
        show(verdict.table())
    elif first:
        print(json.dumps(verdict.as_json(), indent=2, allow_nan=False))  # noqa: T201


def describe(now: robustdeq.evaluation.Progress) -> str:
    """One line of progress."""
    from robustdeq.cli.progress import clock

    left = "" if now.remaining is None else f"  {clock(now.remaining)} left"
    return f"{now.doing}  robust in [{now.robust.low:.1%}, {now.robust.high:.1%}]  {now.rate:.1f} img/s{left}"


def duration(text: str) -> float:
    """Seconds of 90s, 30m, 2h, 1h30m, or a plain number."""
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+|\d+(\.\d+)?", text):
        raise ValueError(f"--budget must be a time such as 90s, 30m, 2h or 1h30m, got {text!r}")
    return sum(float(number) * UNITS.get(unit, 1) for number, unit in re.findall(r"([\d.]+)([smhd]?)", text))
