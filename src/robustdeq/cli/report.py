"""`robustdeq report`: tables, figures and pages from results."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def run(dirs: list[Path], *, out: Path, format: Literal["html", "pdf"] = "html", open: bool = False) -> None:
    """Write every table and figure of the paper that the results allow: HTML, Markdown, CSV, LaTeX.

    Our numbers stand beside the paper's, plainly marked where the two cannot be compared. What is missing is listed
    with the command that would produce it. The same results give the same bytes.

    Args:
        dirs: Stores of evaluate, folders of train, cases kept by explore, files of bench --json, or folders above
            them.
        out: Folder of the report.
        format: What is written beside Markdown, CSV and LaTeX: html, or pdf, which also prints the page to report.pdf
            with an installed Chromium.
        open: Open the page in the browser.
    """
    import webbrowser

    from rich.console import Console

    from robustdeq.cli.progress import saying
    from robustdeq.host.terminal import complain, printable
    from robustdeq.report import write_report
    from robustdeq.report.pdf import find_browser
    from robustdeq.report.write import write_pdf

    if format == "pdf":
        find_browser()  # before minutes of tables
    console = Console()
    with saying(console) as say:
        index = write_report(dirs, out, say, lambda words: complain(words, "warning"))
        if format == "pdf":
            say("printing report.pdf")
            printed = write_pdf(index)
    beside = "report.md, tables/*.csv, tables/*.tex, figures/*.svg"
    console.print(printable(f"{index} (and beside it {beside})"), soft_wrap=True, markup=False)
    if format == "pdf":
        console.print(printable(printed), soft_wrap=True, markup=False)
    if open and not webbrowser.open(index.resolve().as_uri()):
        console.print(
            printable(f"no browser could be started here: open {index} yourself"), soft_wrap=True, markup=False
        )
