"""Tables as CSV and LaTeX, and cells of Markdown tables."""

from __future__ import annotations

import csv
import io
import re

from robustdeq.host.terminal import printable
from robustdeq.report.tables.table import Table


def as_csv(table: Table) -> str:
    """The columns of the table, then two that hold the small print and the origin of each number of the row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*map(_inert, table.head), "beneath (95% interval, K_a, attacks done)", "where from"])
    for row in table.rows:
        pairs = list(zip(table.head, row, strict=True))
        beneath = " | ".join(f"{name}: {cell.small}" for name, cell in pairs if cell.small)
        origins = " | ".join(f"{name}: {cell.where}" for name, cell in pairs if cell.where)
        shown = (_inert(cell.shown) if cell.kind == "text" else cell.shown for cell in row)
        writer.writerow([*shown, _inert(beneath), _inert(origins)])
    return text.getvalue()


def _inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula: names come from wherever the results come from."""
    ours = text.startswith("+ Sec. ") or text == "-"
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not ours else text


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
        *(f"  % {' '.join(note.split())}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def in_markdown(text: str) -> str:
    """A text in one line of Markdown that brings no tags, links or images with it."""
    line = " ".join(printable(text).split())
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line).replace("](", "]\\(").replace("][", "]\\[")


def in_pipe_table(text: str) -> str:
    """Escape a cell of a Markdown table."""
    return in_markdown(text).replace("|", "\\|")


def in_code(text: str) -> str:
    """A text as code in Markdown; it may contain backticks."""
    line = " ".join(printable(text).split())
    longest = max((len(found) for found in re.findall("`+", line)), default=0)
    fence, space = "`" * (longest + 1), " " if "`" in line else ""
    return f"{fence}{space}{line}{space}{fence}"


_TEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text).replace("<=", r"$\leq$")
