"""`robustdeq quickstart`: everything once, on embedded digits, by the commands a user would type."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table as Shown
from rich.text import Text

from robustdeq.cli.progress import saying, sharing
from robustdeq.evaluation import Interrupted, Store
from robustdeq.host.interrupts import stopping
from robustdeq.report import make_report
from robustdeq.report.tables.table import Table
from robustdeq.training.logs import read_log

IMAGES, AUDITED = 50, 10
ROWS = 18 * IMAGES
"""A batch: all attacks of the grid on one state. One attack on so few digits would mostly wait for Python."""
SUITE = "include: [quick, grid]\n"
"""The 144 attacks, and the ready-made one that the report sets beside the worst of them."""
ARMS = {"trades": "digits-nano-trades", "trades-random": "digits-nano-trades-random"}
AUDIT = "trades-random"
STEPS = 96
"""Of a training, for the progress bar."""
DEVICE = ("--device", "cpu")
COLUMNS = ("store", "method", "clean", "PGD", "union")
WIDTH = 100
"""Columns of a terminal that does not say how wide it is."""
POLL = 0.5
"""Seconds between looks at what the commands have written."""


@dataclass
class Step:
    """One command, and how far it is."""

    what: str
    words: list[str]
    out: Path
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.out.parent / f"{self.out.name}.{self.words[0]}.log"

    def share(self) -> float:
        """Of the work that is done, from what the command has written."""
        if self.words[0] == "train":
            rows = read_log(self.out)
            return int(rows[-1]["step"]) / STEPS if rows else 0.0
        store = Store(self.out)
        manifest = store.read_manifest()
        attacks = list(manifest.attacks) if manifest else []
        done = sum(store.has(name, 0) for name in attacks)
        return done / len(attacks) if attacks else 0.0


def run(*, out: Path = Path("runs/quickstart")) -> int:
    """Train, attack, defend and report on embedded digits, in a few minutes on two cores; no network.

    Trains TRADES and TRADES with random intermediate states, attacks both with and without entropy reduction by the
    paper's 144 attacks on the first 50 test digits, audits one at a reduced budget, and writes a report. The same
    commands with another recipe do it on CIFAR-10. Interrupted, it goes on where it stopped.

    Args:
        out: Folder for runs, results and report.
    """
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    out.mkdir(parents=True, exist_ok=True)
    console.print(
        f"Two models are trained, attacked and defended side by side; everything goes to {out}.\n", markup=False
    )
    began = time.monotonic()
    (out / "suite.yaml").write_text(SUITE)
    try:
        with stopping(lambda: f"what was done is in {out}"):
            failed = _run_all([_arm(name, recipe, out) for name, recipe in ARMS.items()], console)
    except Interrupted as stop:
        console.print(str(stop), soft_wrap=True, markup=False)
        return stop.code
    if failed is not None:
        said = failed.log.read_text() if failed.log.exists() else "nothing: it did not start"
        last = "\n".join(said.splitlines()[-5:])
        print(f"robustdeq: error: {failed.what} failed, {failed.log} says:\n{last}", file=sys.stderr)  # noqa: T201
        return 1
    writing = time.monotonic()
    with saying(console) as say:
        report = make_report([out], say)
        index = report.write(out / "report")
    _took(console, time.monotonic() - writing, "report")
    _took(console, time.monotonic() - began, "in all\n")
    console.print(_shown(report.table("table-1")))
    _audited(console, report.table("audit"))
    _farewell(console, out, index)
    return 0


def _arm(name: str, recipe: str, out: Path) -> list[Step]:
    """The commands for one model, in their order; the audit is of the one that trains faster."""
    run, results = out / name, out / "results" / name
    train = ["train", "--recipe", recipe, "--out", str(run), *DEVICE]
    attack = ["evaluate", str(run / "best"), "--suite", str(out / "suite.yaml"), "--limit", str(IMAGES)]
    attack += ["--defence", "entropy", "--keep-images", "--batch-size", str(ROWS), "--out", str(results), *DEVICE]
    what = f"144 attacks on {name}, with and without entropy reduction"
    steps = [Step(f"train {name}", train, run), Step(what, attack, results)]
    if name == AUDIT:
        audited = out / "results" / f"{name}-audit"
        audit = ["evaluate", str(run / "best"), "--suite", "audit-reduced", "--limit", str(AUDITED)]
        audit += ["--defence", "entropy", "--out", str(audited), *DEVICE]
        steps.append(Step(f"audit of {name} with entropy reduction, reduced", audit, audited))
    return steps


def _run_all(queues: list[list[Step]], console: Console) -> Step | None:
    """The queues side by side, each on a core of its own; the step that failed, if one did."""
    with sharing(console) as share, _children() as running:
        started: dict[int, float] = {}
        while queues or running:
            for queue in [q for q in queues if id(q) not in running]:
                step = queue[0]
                started[id(queue)] = time.monotonic()
                running[id(queue)] = _start(step)
            for queue in [q for q in queues if id(q) in running]:
                step, process = queue[0], running[id(queue)]
                if process.exitcode is None:
                    continue
                del running[id(queue)]
                if process.exitcode:
                    return step
                _took(console, time.monotonic() - started[id(queue)], step.what)
                queue.pop(0)
            queues = [q for q in queues if q]
            share({q[0].what: min(q[0].share(), 0.99) for q in queues if id(q) in running})
            time.sleep(POLL)
    return None


def _took(console: Console, seconds: float, what: str) -> None:
    console.print(f"{seconds:5.0f} s  {what}", style="dim", highlight=False)


def _start(step: Step) -> BaseProcess:
    """The command in a process of its own, forked from one that has imported everything: no command waits for that."""
    step.out.parent.mkdir(parents=True, exist_ok=True)
    step.log.unlink(missing_ok=True)
    context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        context.set_forkserver_preload(["robustdeq.cli.main", "sklearn.datasets"])
    process: BaseProcess = context.Process(target=_command, args=(step.words, step.log))
    process.start()
    return process


def _command(words: list[str], log: Path) -> None:
    """`robustdeq WORDS > log 2>&1`."""
    from robustdeq.cli.main import main  # it imports this module

    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["COLUMNS"] = str(WIDTH)
    torch.set_num_threads(1)  # batches of digits are too small to share between threads: a core for each command
    with open(log, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(main(words))


def _end_with_parent() -> None:
    """A command whose quickstart was killed saves and ends: the next quickstart begins it again."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _children() -> Iterator[dict[int, BaseProcess]]:
    """Processes that end with this one; they save what they have."""
    running: dict[int, BaseProcess] = {}
    try:
        yield running
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _shown(table: Table) -> Shown:
    """Of the report's first table the models under the grid, and the columns that fit a terminal."""
    head = list(table.head)
    images = head.index("images")
    most = max((row[images].text for row in table.rows), key=int)
    shown = Shown(title=f"Accuracy (%) on the first {most} test digits, eps 0.15", box=box.SIMPLE)
    places = [(name, head.index(name)) for name in COLUMNS]
    for name, k in places:
        shown.add_column(name, justify="right" if table.numeric(k) else "left")
    for row in table.rows:
        if row[images].text == most:  # the audit's are said beneath
            cells = [row[k] for _, k in places]
            shown.add_row(*(Text.assemble(cell.shown, (f"\n{cell.small}" * bool(cell.small), "dim")) for cell in cells))
    shown.caption = "PGD: lowest of the 144 attacks; union: images that survive all; beneath them 95% intervals"
    return shown


def _audited(console: Console, table: Table) -> None:
    row = dict(zip(table.head, table.rows[0], strict=True))
    console.print(
        f"Audit of {row['store'].text} ({row['suite'].text}: a small budget, to show how an audit reads): verdict "
        f"{row['verdict'].text}; flags: {row['flags'].text}\n",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _farewell(console: Console, out: Path, index: Path) -> None:
    best = out / AUDIT / "best"
    console.print(
        f"Look:     {index}\n"
        f"Try:      robustdeq predict {best} YOUR-DIGIT.png --defence entropy\n"
        f"Go on:    robustdeq evaluate {best} --suite audit --limit {IMAGES} --out {out / 'audit'}\n"
        f"CIFAR-10: robustdeq recipes\n"
        f"Your own: robustdeq evaluate package.module:function --data digits --eps 0.15 --out DIR",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
