"""Tables as CSV and LaTeX, and cells of Markdown tables."""

from __future__ import annotations

import csv
import io

from robustdeq.report.tables.table import Table


def as_csv(table: Table) -> str:
    """The columns of the table, then two that hold the small print and the origin of each number of the row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.head, "beneath (95% interval, K_a, attacks done)", "where from"])
    for row in table.rows:
        pairs = list(zip(table.head, row, strict=True))
        beneath = " | ".join(f"{name}: {cell.small}" for name, cell in pairs if cell.small)
        origins = " | ".join(f"{name}: {cell.where}" for name, cell in pairs if cell.where)
        writer.writerow([*(cell.shown for cell in row), beneath, origins])
    return text.getvalue()


def as_latex(table: Table) -> str:
    """A table in the style of the package booktabs."""
    columns = "".join("r" if table.numeric(k) else "l" for k in range(len(table.head)))
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_tex(table.title)}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        "    " + " & ".join(map(_tex, table.head)) + r" \\",
        r"    \midrule",
        *("    " + " & ".join(_tex(cell.shown) for cell in row) + r" \\" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *(f"  % {note}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def in_pipe_table(text: str) -> str:
    """Escape a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text).replace("<=", r"$\leq$")
