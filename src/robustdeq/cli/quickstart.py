"""`robustdeq quickstart`: everything once, on embedded digits, by the commands that a user would type."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustdeq.cli.progress import left, saying

if TYPE_CHECKING:
    import robustdeq.report.tables.table

IMAGES, AUDITED = 50, 100
BATCH = 18 * IMAGES
"""Images per batch: all attacks of the grid on one state. One attack on so few digits would mostly wait for Python."""
SUITE = "include: [quick, grid]\n"
"""The 144 attacks of the grid, and the ready-made one that the report sets beside the strongest of them."""
ARMS = {"trades": "digits-nano-trades", "trades-random": "digits-nano-trades-random"}
"""Recipe of each model."""
AUDITED_ARM = "trades-random"
STEPS = 96
"""Steps of a training, for the progress."""
COLUMNS = ("store", "method", "clean", "PGD", "union")
WIDTH = 100
"""Columns of a terminal that does not say how wide it is."""
POLL = 0.5
"""Seconds between looks at what the commands have written."""


@dataclass
class Step:
    """One command, run in a process of its own."""

    what: str
    words: list[str]
    process: BaseProcess | None = None
    began = before = 0.0

    @property
    def out(self) -> Path:
        """Folder that the command writes into."""
        return Path(self.words[self.words.index("--out") + 1])

    @property
    def log(self) -> Path:
        """File with what the command prints."""
        return self.out.parent / f"{self.out.name}.{self.words[0]}.log"

    def share(self) -> float:
        """Share of the work that is done, from what the command has written."""
        from robustdeq.evaluation import Store
        from robustdeq.training.logs import read_log

        if self.words[0] == "train":
            rows = read_log(self.out)
            return int(rows[-1]["step"]) / STEPS if rows else 0.0
        store = Store(self.out)
        manifest = store.read_manifest()
        attacks = list(manifest.attacks) if manifest else []
        return sum(store.has(name, 0) for name in attacks) / len(attacks) if attacks else 0.0

    def describe(self) -> str:
        """One line of progress."""
        share = min(self.share(), 0.99)
        return f"{self.what}: {share:.0%}{left(share - self.before, 1 - self.before, time.monotonic() - self.began)}"

    def start(self) -> None:
        """Start the process, forked from one that has imported everything: no command waits for that."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            modules = [
                "robustdeq.cli.arguments.checkpoint",
                "robustdeq.cli.arguments.deploy",
                "robustdeq.training.trainer",
                "sklearn.datasets",
            ]
            context.set_forkserver_preload(modules)
        self.began, self.before = time.monotonic(), self.share()
        self.process = context.Process(target=_command, args=(self.words, self.log))
        self.process.start()


def run(*, out: Path = Path("runs/quickstart"), seed: int = 0) -> None:
    """Train, attack, defend and report on embedded digits, in a few minutes on two cores; no network.

    Trains TRADES and TRADES with random intermediate states, attacks both with and without entropy reduction by the
    paper's 144 attacks on the first 50 test digits, audits one at a reduced budget, and writes a report. The same
    commands with another recipe do it on CIFAR-10. If interrupted, the same command resumes.

    Args:
        out: Folder of the runs, the results and the report.
        seed: Seed of the trainings and of the attacks.
    """
    from robustdeq.host.interrupts import stopping
    from robustdeq.report import make_report

    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    console.print(f"Two models are trained, attacked and defended side by side; everything goes to {out}.\n")
    began = time.monotonic()
    (out / "suite.yaml").write_text(SUITE)
    with stopping(lambda: f"what was done is in {out}"):
        failed = _run_all([_arm(name, out, seed) for name in ARMS], console)
    if failed is not None:
        said = failed.log.read_text() if failed.log.exists() else "nothing: it did not start"
        raise RuntimeError("\n".join([f"{failed.what} failed, {failed.log} says:", *said.splitlines()[-5:]]))
    writing = time.monotonic()
    with saying(console) as say:
        report = make_report([out], say)
        index = report.write(out / "report")
    _took(console, writing, "report")
    _took(console, began, "in all\n")
    console.print(_shown(report.table("table-1")))
    best = out / AUDITED_ARM / "best"
    console.print(
        f"{_audited(out / 'results' / f'{AUDITED_ARM}-audit')}\n\n"
        f"Look:     {index}\n"
        f"Try:      robustdeq predict {best} YOUR-DIGIT.png --defence entropy\n"
        f"Watch:    robustdeq explore {best}\n"
        f"Go on:    robustdeq evaluate {best} --defence entropy --suite audit --out {out / 'audit'}\n"
        f"CIFAR-10: robustdeq recipes\n"
        f"Your own: robustdeq evaluate package.module:function --data digits --eps 0.15 --out DIR",
        soft_wrap=True,
    )


def _audited(folder: Path) -> str:
    """The verdict of the audit and the flags that are not cleared, as `evaluate` prints them."""
    from robustdeq.evaluation import Store
    from robustdeq.evaluation.audit.judge import read_audit

    audit = read_audit(Store(folder))
    assert audit is not None
    raised, undecided = (", ".join(flag.name for flag in flags) for flags in (audit.raised, audit.undecided))
    return (
        f"Audit of {AUDITED_ARM} with entropy reduction ({AUDITED} images and few steps, to show how an audit reads)\n"
        f"{audit.last_line()}\nflags raised: {raised or 'none'}; undecided: {undecided or 'none'}"
    )


def _arm(name: str, out: Path, seed: int = 0) -> list[Step]:
    """The commands for one model, in order; the model that trains faster is audited too."""
    run, results = out / name, out / "results" / name
    train = ["train", "--recipe", ARMS[name], "--out", str(run)]
    attack = ["evaluate", str(run / "best"), "--suite", str(out / "suite.yaml"), "--limit", str(IMAGES)]
    attack += ["--defence", "entropy", "--keep-images", "--batch-size", str(BATCH), "--out", str(results)]
    what = f"144 attacks on {name}, with and without entropy reduction"
    steps = [Step(f"train {name}", train), Step(what, attack)]
    if name == AUDITED_ARM:
        audit = ["evaluate", str(run / "best"), "--suite", "audit-reduced", "--limit", str(AUDITED)]
        audit += ["--defence", "entropy", "--out", f"{results}-audit"]
        steps.append(Step(f"audit of {name} with entropy reduction, reduced", audit))
    return [Step(step.what, [*step.words, "--seed", str(seed), "--device", "cpu"]) for step in steps]


def _run_all(arms: list[list[Step]], console: Console) -> Step | None:
    """Run the arms side by side, each on a core of its own; returns the step that failed, if one did.

    Processes that are still running at the end, however it comes, are told to save and stop.
    """
    try:
        with saying(console) as say:
            while arms:
                for arm in arms:
                    step = arm[0]
                    if step.process is None:
                        step.start()
                    elif step.process.exitcode:
                        return step
                    elif step.process.exitcode == 0:
                        _took(console, step.began, step.what)
                        arm.pop(0)
                arms = [arm for arm in arms if arm]
                say("; ".join(arm[0].describe() for arm in arms if arm[0].process is not None))
                time.sleep(POLL)
    finally:
        running = [arm[0].process for arm in arms if arm and arm[0].process is not None]
        for process in running:
            process.terminate()
        for process in running:
            process.join()
    return None


def _took(console: Console, since: float, what: str) -> None:
    console.print(f"{time.monotonic() - since:5.0f} s  {what}", style="dim")


def _command(words: list[str], log: Path) -> None:
    """`robustdeq WORDS > log 2>&1`."""
    import torch

    from robustdeq.cli.main import main

    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["COLUMNS"] = str(WIDTH)
    torch.set_num_threads(1)  # batches of digits are too small to share between threads: a core for each command
    with open(log, "wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.exit(main(words))


def _end_with_parent() -> None:
    """Save and stop once the quickstart is gone, even if it was killed: the next one starts this command again."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _shown(table: robustdeq.report.tables.table.Table) -> Table:
    """The rows of the report's first table that are about the grid, and the columns that fit a terminal."""
    head = list(table.head)
    images = head.index("images")
    most = mode(row[images].text for row in table.rows)
    shown = Table(title=f"Accuracy (%) on the first {most} test digits, eps 0.15", box=box.SIMPLE)
    places = [(name, head.index(name)) for name in COLUMNS]
    for name, k in places:
        shown.add_column(name, justify="right" if table.numeric(k) else "left")
    for row in table.rows:
        if row[images].text == most:  # the audit has other images, and lines of its own
            cells = [row[k] for _, k in places]
            shown.add_row(*(Text.assemble(cell.shown, (f"\n{cell.small}" * bool(cell.small), "dim")) for cell in cells))
    shown.caption = "PGD: lowest of the 144 attacks; union: images that survive all; beneath them 95% intervals"
    return shown
