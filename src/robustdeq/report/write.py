"""A report in a folder: index.html, report.md, tables as CSV and LaTeX, figures as SVG, pages of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from robustdeq.report.figures import make_figures
from robustdeq.report.formats import as_csv, as_latex, as_markdown
from robustdeq.report.images import make_pages
from robustdeq.report.missing import missing_experiments
from robustdeq.report.sources import find_sources
from robustdeq.report.tables import make_tables


def write_report(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Everything that the results allow; the same results give the same bytes.

    Args:
        folders: Stores of `evaluate`, folders of `train`, or folders above them.
        out: Where the report goes.

    Returns:
        Its index.html.
    """
    sources = find_sources(folders)
    tables, figures, pages = make_tables(sources), make_figures(sources), make_pages(sources)
    missing = missing_experiments(sources)
    notes = [
        (r.label, note) for r in sources.results if r.predictor == "deployed" for note in r.store.manifest["notes"]
    ]
    environment = Environment(
        loader=PackageLoader("robustdeq.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    files: dict[str, str] = {}
    content = {
        "sources": sources,
        "tables": tables,
        "figures": figures,
        "pages": pages,
        "missing": missing,
        "notes": notes,
    }
    files["index.html"] = environment.get_template("index.html").render(content)
    for page in pages:
        files[f"{page.name}.html"] = environment.get_template("images.html").render(page=page)
    for table in tables:
        files[f"tables/{table.name}.csv"] = as_csv(table)
        files[f"tables/{table.name}.tex"] = as_latex(table)
    for figure in figures:
        files[f"figures/{figure.name}.svg"] = figure.svg
    parts = ["# robustdeq report\n", *map(as_markdown, tables)]
    parts += [f"### {f.title}\n\n![{f.alt}](figures/{f.name}.svg)\n" for f in figures]
    parts += ["## Notes\n\n" + "\n".join(f"- {label}: {note}" for label, note in notes) + "\n"] if notes else []
    parts.append("## Missing\n\n" + "\n".join(f"- {m.item}: {m.what}. `{m.command}`" for m in missing) + "\n")
    files["report.md"] = "\n".join(parts)
    for name, text in files.items():
        path = Path(out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return Path(out) / "index.html"
