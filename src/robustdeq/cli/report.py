"""`robustdeq report`: tables, figures and pages from results."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from robustdeq.cli.progress import saying
from robustdeq.report import write_report


def run(dirs: list[Path], *, out: Path) -> None:
    """Write every table and figure of the paper that the results allow: HTML, Markdown, CSV, LaTeX.

    Ours beside the paper's numbers, plainly marked where they cannot be compared; what is missing, with the command
    that would produce it. The same results give the same bytes.

    Args:
        dirs: Stores of evaluate, folders of train, or folders above them.
        out: Where the report goes.
    """
    console = Console()
    with saying(console) as say:
        index = write_report(dirs, out, say)
    console.print(
        f"{index} (and beside it report.md, tables/*.csv, tables/*.tex, figures/*.svg)", soft_wrap=True, markup=False
    )
