"""`robustdeq evaluate`: attack a predictor by a suite, into a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from rich.console import Console
from torch import nn

from robustdeq.cli.checkpoints import defence_budget, resolve
from robustdeq.cli.clock import clock, duration
from robustdeq.cli.deploy import defence_settings, deploy
from robustdeq.cli.progress import counting
from robustdeq.evaluation import Interrupted, evaluate
from robustdeq.evaluation import Progress as Report
from robustdeq.host.processes import launch
from robustdeq.threat import L2, Linf, Threat, number


def run(
    *,
    ckpt: str,
    out: Path,
    suite: str = "quick",
    data: str | None = None,
    data_root: Path | None = None,
    limit: int | None = None,
    eps: str | None = None,
    norm: Literal["Linf", "L2"] = "Linf",
    defence: Literal["none", "entropy"] = "none",
    defence_variant: Literal["paper", "released"] | None = None,
    defence_direction: Literal["gradient", "sign"] | None = None,
    defence_resolve: bool | None = None,
    defence_history: Literal["kept", "restarted"] | None = None,
    defence_handed_on: Literal["iterate", "lowest"] | None = None,
    defence_final_input: Literal["purified", "received"] | None = None,
    defence_every: int | None = None,
    defence_steps: int | None = None,
    state: str | None = None,
    aware: bool = False,
    union: bool = False,
    budget: str | None = None,
    keep_images: bool | None = None,
    sources: list[Path] | None = None,
    seed: int = 0,
    batch_size: int = 100,
    shard_size: int = 500,
    device: str = "auto",
) -> int:
    """Attack a predictor by a suite; the same command goes on where an earlier one stopped.

    Args:
        ckpt: A folder, a shipped checkpoint's name, or package.module:function that returns a predictor.
        out: Folder of the results.
        suite: quick, grid, autoattack, audit, transfer, paper, table4, settings, or a YAML file of your own.
        data: cifar10, digits or folder; what the checkpoint was trained on if not given.
        data_root: Where the data are.
        limit: Only the first test images.
        eps: Radius of the attacks, such as 8/255; what the checkpoint was trained for if not given.
        norm: Linf or L2.
        defence: Input entropy reduction around the model, or none.
        defence_variant: The paper's algorithm (if not given) or the released code's.
        defence_direction: Along what the image moves; this and the next as the variant has them if not given.
        defence_resolve: Whether the state is solved again with the moved image.
        defence_history: What becomes of the solver's factors at an intervention.
        defence_handed_on: The state that a segment hands on.
        defence_final_input: The image that the final state is unrolled with.
        defence_every: T_f, solver steps between interventions; 2 if not given.
        defence_steps: R, inner iterations of an intervention; 10 if not given.
        state: The state that predicts, 1..N or final; 8 if not given, the solver's last if it has fewer.
        aware: Also attack with gradients of the defended pass.
        union: Broken images leave, cheapest attacks first: the union's accuracy, several times faster.
        budget: Stop after this time, such as 90s, 30m or 2h.
        keep_images: Store the adversarial images.
        sources: Other stores whose kept images are shown to this predictor.
        seed: Of everything random.
        batch_size: Images attacked at a time: what a kill can lose.
        shard_size: Images of an item of work, which processes share and files hold.
        device: auto, cpu, cuda, mps.
    """
    seconds = None if budget is None else duration(budget)
    given = {
        "variant": defence_variant,
        "direction": defence_direction,
        "resolve": defence_resolve,
        "history": defence_history,
        "handed_on": defence_handed_on,
        "final_input": defence_final_input,
        "every": defence_every,
        "steps": defence_steps,
    }
    settings = defence_settings(defence, {name: value for name, value in given.items() if value is not None})
    checkpoint = resolve(ckpt)
    if settings is not None:
        settings |= defence_budget(checkpoint.eps)
    predictor = deploy(checkpoint.predictor, defence=settings, state=state)
    dataset = checkpoint.dataset if data is None else data
    if dataset is None:
        raise ValueError(f"{ckpt} does not say what data it is for: give --data cifar10, digits or folder")
    threat = _threat(norm, eps, checkpoint.eps, ckpt)
    fabric = launch(device)
    if isinstance(predictor, nn.Module):
        predictor = predictor.to(fabric.device)
    console = Console(quiet=os.environ.get("RANK", "0") != "0")
    try:
        with counting(console) as count:

            def report(now: Report) -> None:
                count(describe(now), now.done, now.total)

            verdict = evaluate(
                predictor,
                dataset,
                suite,
                out,
                threat=threat,
                seed=seed,
                batch_size=batch_size,
                shard_size=shard_size,
                union=union,
                budget=seconds,
                limit=limit,
                keep_images=keep_images,
                aware=aware,
                sources=sources or (),
                name=ckpt,
                data_root=data_root,
                data_options=checkpoint.options_for(dataset),
                report=report,
            )
    except Interrupted as stop:
        console.print(str(stop), soft_wrap=True, markup=False)
        return stop.code
    console.print(verdict.table(), soft_wrap=True, highlight=False, markup=False)
    return 0


def describe(now: Report) -> str:
    """One line of progress."""
    left = "" if now.remaining is None else f"  {clock(now.remaining)} left"
    return f"{now.doing}  robust in [{now.robust.low:.1%}, {now.robust.high:.1%}]  {now.rate:.1f} img/s{left}"


def _threat(norm: str, eps: str | None, trained_for: float | None, ckpt: str) -> Threat:
    kind = {"Linf": Linf, "L2": L2}[norm]
    if eps is not None:
        return kind(number(eps, "--eps"))
    if trained_for is None or kind is L2:
        raise ValueError(f"{ckpt} does not say for which {norm} radius it is meant: give --eps, such as 8/255")
    return kind(trained_for)
