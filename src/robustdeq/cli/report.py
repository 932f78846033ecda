"""`robustdeq report`: tables, figures and pages from results."""

from __future__ import annotations

from pathlib import Path


def run(dirs: list[Path], *, out: Path) -> None:
    """Write every table and figure of the paper that the results allow: HTML, Markdown, CSV, LaTeX.

    Our numbers stand beside the paper's, plainly marked where the two cannot be compared. What is missing is listed
    with the command that would produce it. The same results give the same bytes.

    Args:
        dirs: Stores of evaluate, folders of train, or folders that contain them.
        out: Folder of the report.
    """
    from rich.console import Console

    from robustdeq.cli.progress import saying
    from robustdeq.report import write_report

    console = Console()
    with saying(console) as say:
        index = write_report(dirs, out, say)
    beside = "report.md, tables/*.csv, tables/*.tex, figures/*.svg"
    console.print(f"{index} (and beside it {beside})", soft_wrap=True, markup=False)
