"""A report in a folder: index.html, report.md, tables as CSV and LaTeX, figures as SVG, pages of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from robustdeq.host.files import remove_stale, write_atomically, write_together
from robustdeq.report.commands import ROOT, ROOT_NOTE
from robustdeq.report.drawing import Figure
from robustdeq.report.figures import make_figures
from robustdeq.report.formats import as_csv, as_latex, as_markdown
from robustdeq.report.images import ImagePage, make_pages
from robustdeq.report.missing import Missing, missing_experiments
from robustdeq.report.sources import Sources, find_sources
from robustdeq.report.table import Table
from robustdeq.report.tables import Say, make_tables, silent

LIST = ".robustdeq-report"
"""What a report consists of, so that the next one into the same folder leaves nothing of it."""


@dataclass(frozen=True)
class Report:
    """Everything that results allow; the same results give the same bytes."""

    sources: Sources
    tables: list[Table]
    figures: list[Figure]
    pages: list[ImagePage]
    missing: list[Missing]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """What the stores say of themselves: (store, note)."""
        deployed = [r for r in self.sources.results if r.predictor == "deployed"]
        return [(r.label, note) for r in deployed for note in r.store.manifest.notes]

    @property
    def missing_note(self) -> str:
        """What the commands for what is missing do not say; empty where they say it all."""
        return ROOT_NOTE if any(f"--data-root {ROOT}" in m.command for m in self.missing) else ""

    def table(self, name: str) -> Table:
        """A table by its name, such as table-1."""
        return next(table for table in self.tables if table.name == name)

    def write(self, out: str | Path) -> Path:
        """Into a folder, in the place of an earlier report's files; its index.html."""
        folder, files = Path(out), self._files()
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder)
        earlier = _listed(folder)
        _write_list(folder, earlier | set(files))  # whatever a kill leaves of either is in the list
        write_together({folder / name: text.encode() for name, text in files.items()})
        for name in earlier - set(files):
            (folder / name).unlink(missing_ok=True)
        _write_list(folder, set(files))
        return folder / "index.html"

    def _files(self) -> dict[str, str]:
        environment = Environment(
            loader=PackageLoader("robustdeq.report"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {"notes": self.notes, "missing_note": self.missing_note}
        files = {"index.html": environment.get_template("index.html").render(content)}
        for page in self.pages:
            files[f"{page.name}.html"] = environment.get_template("images.html").render(page=page)
        for table in self.tables:
            files[f"tables/{table.name}.csv"] = as_csv(table)
            files[f"tables/{table.name}.tex"] = as_latex(table)
        for figure in self.figures:
            files[f"figures/{figure.name}.svg"] = figure.svg
        return {**files, "report.md": self._markdown()}

    def _markdown(self) -> str:
        parts = ["# robustdeq report\n", *map(as_markdown, self.tables)]
        parts += [f"### {f.title}\n\n![{f.alt}](figures/{f.name}.svg)\n" for f in self.figures]
        if self.notes:
            parts.append("## Notes\n\n" + "\n".join(f"- {label}: {note}" for label, note in self.notes) + "\n")
        parts.append("## Missing\n" + (f"\n{self.missing_note}\n" if self.missing_note else ""))
        parts.append("\n".join(f"- {m.item}: {m.what}. `{m.command}`" for m in self.missing) + "\n")
        return "\n".join(parts)


def _write_list(folder: Path, names: set[str]) -> None:
    write_atomically(folder / LIST, "".join(f"{name}\n" for name in sorted(names)).encode())


def _listed(folder: Path) -> set[str]:
    """The files of an earlier report, those inside its folder."""
    try:
        names = (folder / LIST).read_text().splitlines()
    except FileNotFoundError:
        return set()
    return {name for name in names if (folder / name).resolve().is_relative_to(folder.resolve())}


def make_report(folders: Sequence[str | Path], say: Say = silent) -> Report:
    """From stores of `evaluate`, folders of `train`, or folders above them; `say` is told what is being done."""
    say("reading the results")
    sources = find_sources(folders)
    tables = make_tables(sources, say)
    say("drawing figures")
    figures = make_figures(sources)
    say("pages of images, and what is missing")
    return Report(
        sources=sources,
        tables=tables,
        figures=figures,
        pages=make_pages(sources),
        missing=missing_experiments(sources),
    )


def write_report(folders: Sequence[str | Path], out: str | Path, say: Say = silent) -> Path:
    """Everything that the results allow; the same results give the same bytes.

    Args:
        folders: Stores of `evaluate`, folders of `train`, or folders above them.
        out: Where the report goes.
        say: Told what is being done.

    Returns:
        Its index.html.
    """
    return make_report(folders, say).write(out)
