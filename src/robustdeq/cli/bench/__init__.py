"""`robustdeq bench`: speed beside the plain implementation, and the arithmetic limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table

Subject = Literal["core", "train", "defence", "evaluate"]
MODELS = "mdeq-large,mdeq-tiny"


def run(
    subject: Subject = "core",
    *,
    models: str | None = None,
    batch: int | None = None,
    rounds: int = 5,
    images: int = 100,
    attack: Literal["grid", "autoattack"] = "grid",
    rows: str | None = None,
    compile: bool = False,
    data_root: Path | None = None,
    json_file: Path | None = None,
) -> None:
    """Measure speed on this machine in one run, ours beside `robustdeq.plain`.

    Args:
        subject: What to measure: core (one evaluation of f, an N-step solve), train (a step of PGD-AT and TRADES, with
            final and random states, cold and carried inner attacks), defence (a defended prediction, over T_f and R),
            evaluate (the grid of 144 attacks, or AutoAttack with cold and carried gradients, on a trained checkpoint).
        models: Models to measure, separated by commas (mdeq-large,mdeq-tiny if not given); for evaluate, checkpoints (a
            model trained on digits for the purpose if not given).
        batch: Images per batch; each model's own default if not given.
        rounds: Number of timed rounds; the least time counts.
        images: Test images to attack (evaluate).
        attack: The grid of 144 attacks or AutoAttack (evaluate).
        rows: Rows to measure, separated by semicolons, such as "trades + random" (train; all if not given).
        compile: Compile our side, as `robustdeq train --compile true` does (train); takes minutes before it measures.
        data_root: Folder of the checkpoints' data (evaluate).
        json_file: Write the records here as JSON.
    """
    from robustdeq.cli.arguments.folders import make_room
    from robustdeq.cli.bench.core import core  # these need torch, which `robustdeq bench --help` does not wait for
    from robustdeq.cli.bench.defence import defence
    from robustdeq.cli.bench.evaluate import evaluate
    from robustdeq.cli.bench.measure import peak_rate
    from robustdeq.cli.bench.train import train
    from robustdeq.cli.progress import saying
    from robustdeq.host.provenance import provenance

    if rounds < 1 or images < 1 or (batch is not None and batch < 1):
        raise ValueError(f"rounds, images and batch must be at least 1, got {rounds}, {images} and {batch}")
    if compile and subject != "train":
        raise ValueError(f"--compile is for bench train, not for bench {subject}")
    if rows is not None and subject != "train":
        raise ValueError(f"--rows is for bench train, not for bench {subject}")
    if attack != "grid" and subject != "evaluate":
        raise ValueError(f"--attack is for bench evaluate, not for bench {subject}")
    if json_file is not None:
        make_room(json_file, "--json")
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # into a file: the table has no screen to fit
    where = provenance()
    with saying(console) as say:
        if subject == "evaluate":
            records = evaluate(models.split(",") if models else [], attack, images, data_root, say)
        else:
            wanted = None if rows is None else rows.split(";")
            measure: Callable[..., list[dict[str, Any]]] = partial(train, compiled=compile, rows=wanted)
            if subject != "train":
                measure = core if subject == "core" else defence
            peak, names = peak_rate(rounds, say), (models or MODELS).split(",")
            records = [record for name in names for record in measure(name, batch, rounds, peak, say)]
    console.print(_table(records))
    for r in records:
        if "macs_speedup" in r:
            console.print(_limits(r))
    console.print(
        f"{where['hardware']['machine']}, {where['hardware']['threads']} threads, commit {where['commit']}", style="dim"
    )
    if json_file is not None:
        json_file.write_text(json.dumps([{**r, "environment": where} for r in records], indent=2) + "\n")
        console.print(f"records written to {json_file}", markup=False)


def _limits(r: dict[str, Any]) -> str:
    """The speedup in multiply-adds, and the speedup if ours ran at the machine's peak rate."""
    counted, at_peak = f"{r['macs_speedup']:.2f}x over plain", f"{r['speedup_at_peak']:.2f}x"
    if "macs_over_undefended" in r:
        counted += f", {r['macs_over_undefended']:.2f}x the undefended prediction"
        at_peak += f" over plain, {r['over_undefended_at_peak']:.2f}x the undefended prediction, as measured"
    return f"{r['model']}, {r['name']}: in multiply-adds {counted}; in time, ours at the machine's peak: {at_peak}"


COLUMNS: dict[str, tuple[str, Callable[[Any], str], str]] = {
    "model": ("model", str, ""),
    "what": ("name", str, ""),
    "batch": ("batch", str, ""),
    "ours": ("ours", lambda seconds: f"{seconds * 1e3:.3f}", ""),
    "plain": ("plain", lambda seconds: f"{seconds * 1e3:.3f}", ""),
    "speedup": ("speedup", lambda ratio: f"{ratio:.2f}x", "of the least times"),
    "by round": (
        "speedup_quartiles",
        lambda q: f"{q[1]:.2f} ({q[0]:.2f}-{q[2]:.2f})",
        "median and middle half of the speedups of single rounds",
    ),
    "images/s": ("samples_per_second", "{:.1f}".format, "of ours"),
    "/cold": ("over_cold", "{:.2f}x".format, "ours with cold gradients and the model's own unrolling over this one"),
    "left": ("left", str, "images that stay correct"),
    "f": ("f_equivalents", "{:.0f}".format, "multiply-adds of ours, in evaluations of f"),
    "MMAC": ("macs", lambda macs: f"{macs / 1e6:.1f}", "million multiply-adds per image"),
    "of convs": ("fraction_of_its_convolutions", "{:.0%}".format, "rate of f over that of its convolutions alone"),
    "of peak": (
        "fraction_of_peak",
        "{:.0%}".format,
        "over this machine's best convolution rate (of f in direct multiply-adds, of which tiles take fewer)",
    ),
    "/(N+1)f": ("cost_over_f", "{:.2f}".format, "solve over N+1 evaluations of f"),
    "/undefended": ("over_undefended", "{:.2f}x".format, "over the undefended prediction at the same state"),
}
"""Columns of the table: the record's field, how it is written, and what it means."""


def _table(records: list[dict[str, Any]]) -> Table:
    """A table with the columns that occur in at least one record."""
    shown = {name: column for name, column in COLUMNS.items() if any(column[0] in r for r in records)}
    table = Table(title="milliseconds per image; speedup = plain / ours", box=box.SIMPLE)
    for name in shown:
        table.add_column(name, justify="left" if name in ("model", "what") else "right")
    for r in records:
        table.add_row(*("" if r.get(field) is None else write(r[field]) for field, write, _ in shown.values()))
    table.caption = "; ".join(f"{name}: {meaning}" for name, (_, _, meaning) in shown.items() if meaning)
    return table
