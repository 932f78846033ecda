"""A report in a folder: index.html, report.md, tables as CSV and LaTeX, figures as SVG, pages of images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from robustdeq.host.files import remove_stale, write_atomically, write_together
from robustdeq.report.figures import Figure, make_figures
from robustdeq.report.formats import as_csv, as_latex, in_code, in_markdown, in_pipe_table
from robustdeq.report.images import ImagePage, make_pages
from robustdeq.report.missing import ROOT, ROOT_NOTE, Missing, missing_experiments, rest
from robustdeq.report.page import pages
from robustdeq.report.pdf import print_pdf
from robustdeq.report.results import Sources, find_sources
from robustdeq.report.tables import Say, Table, make_tables

HEADING = 24
"""Characters of a title that name the paper's table or figure; labels of stores come later."""
LIST = ".robustdeq-report"
"""The file that lists a report's files, so that the next report in the same folder can remove them."""
PDF = "report.pdf"


@dataclass(frozen=True)
class Report:
    """Everything that the results allow; the same results give the same bytes."""

    sources: Sources
    tables: list[Table]
    figures: list[Figure]
    pages: list[ImagePage]
    missing: list[Missing]

    def table(self, name: str) -> Table:
        """A table by its name, such as table-1."""
        return next(table for table in self.tables if table.name == name)

    def write(self, out: str | Path) -> Path:
        """Write all files into a folder, remove those of an earlier report, and return the path of index.html."""
        folder, files = Path(out), self._files()
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder)
        earlier = _listed(folder)
        _write_list(folder, earlier | set(files))  # a process killed from here on leaves no file that is not listed
        write_together({folder / name: text.encode(errors="backslashreplace") for name, text in files.items()})
        for name in earlier - set(files):
            (folder / name).unlink(missing_ok=True)
        _write_list(folder, set(files))
        return folder / "index.html"

    def _files(self) -> dict[str, str]:
        environment = Environment(
            loader=PackageLoader("robustdeq.report"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters |= {"in_pipe_table": in_pipe_table, "in_markdown": in_markdown, "in_code": in_code}
        manifests = [(r.label, r.manifest) for r in self.sources.deployed]
        further = {
            "commands": [(label, entry.command) for label, m in manifests for entry in m.asked if entry.command],
            "notes": [(label, note) for label, manifest in manifests for note in manifest.notes],
            "missing_note": ROOT_NOTE if any(f"--data-root {ROOT}" in m.command for m in self.missing) else "",
        }
        content = {field.name: getattr(self, field.name) for field in fields(self)} | further
        files = {"report.md": environment.get_template("report.md").render(content)}
        files |= pages(self.sources, self.tables, self.figures, self.pages, self.missing, further)
        for table in self.tables:
            files[f"tables/{table.name}.csv"] = as_csv(table)
            files[f"tables/{table.name}.tex"] = as_latex(table)
        return files | {f"figures/{figure.name}.svg": figure.svg for figure in self.figures}


def make_report(folders: Sequence[str | Path], say: Say = lambda words: None, warn: Say = warnings.warn) -> Report:
    """Make a report from what `evaluate`, `train` and `bench` wrote, or folders above; `say` takes its progress."""
    say("reading the results")
    sources = find_sources(folders, warn)
    tables = make_tables(sources, say)
    say("drawing figures")
    figures = make_figures(sources)
    say("pages of images, and what is missing")
    missing = missing_experiments(sources)
    titles = [table.title for table in tables] + [figure.title for figure in figures]
    missing += rest([title[:HEADING] for title in titles], missing)
    return Report(sources, tables, figures, make_pages(sources), missing)


def write_report(
    folders: Sequence[str | Path], out: str | Path, say: Say = lambda words: None, warn: Say = warnings.warn
) -> Path:
    """Write everything that the results allow; the same results give the same bytes.

    Args:
        folders: Stores of `evaluate`, folders of `train`, files of `bench --json`, or folders above them.
        out: Folder of the report.
        say: Progress callback, called with a line of text.
        warn: Called with a line about each file that was given but holds nothing to report.

    Returns:
        The path of index.html.
    """
    return make_report(folders, say, warn).write(out)


def write_pdf(index: Path) -> Path:
    """Print a written report to report.pdf beside its index.html; the next report in the folder removes it."""
    folder = index.parent
    _write_list(folder, _listed(folder) | {PDF})
    return print_pdf(index, folder / PDF)


def _write_list(folder: Path, names: set[str]) -> None:
    write_atomically(folder / LIST, "".join(f"{name}\n" for name in sorted(names)).encode())


def _listed(folder: Path) -> set[str]:
    """The files of an earlier report, ignoring names that lead out of its folder."""
    path = folder / LIST
    names = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return {name for name in names if (folder / name).resolve().is_relative_to(folder.resolve())}
