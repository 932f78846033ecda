"""Tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io

from robustdeq.report.table import Table


def as_csv(table: Table) -> str:
    """One column per column, then what stands beneath and where from, for each of the row's numbers."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*table.head, "beneath (95% interval, K_a, attacks done)", "where from"])
    for row in table.rows:
        pairs = list(zip(table.head, row, strict=True))
        beneath = " | ".join(f"{name}: {cell.small}" for name, cell in pairs if cell.small)
        origins = " | ".join(f"{name}: {cell.where}" for name, cell in pairs if cell.where)
        writer.writerow([*(cell.shown for cell in row), beneath, origins])
    return text.getvalue()


def as_markdown(table: Table) -> str:
    """A pipe table with its title and notes."""
    lines = [f"### {table.title}", ""]
    lines.append("| " + " | ".join(map(_pipe, table.head)) + " |")
    lines.append("|" + "---|" * len(table.head))
    lines += ["| " + " | ".join(_pipe(cell.shown) for cell in row) + " |" for row in table.rows]
    return "\n".join([*lines, "", *(f"{note}\n" for note in table.notes)])


def as_latex(table: Table) -> str:
    """A booktabs table."""
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


def _pipe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text).replace("<=", r"$\leq$")
