"""The sentence that a table answers, from its numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from robustdeq.report.tables.table import NONE, Cell, Table

Value = tuple[str, float]
"""Whose number it is, and the number."""
OURS = ("ours", "bound")


def answer(table: Table) -> str:
    """What a table says in one or two sentences; the range of its numbers where it has no question of its own."""
    name = next((name for name in _ANSWERS if table.name == name or table.name.startswith(f"{name}-")), None)
    return (_ANSWERS[name](table) if name else "") or _range(table)


def _values(table: Table, column: str) -> list[Value]:
    """Our numbers of a column with the first cell of their rows."""
    return [(row[0].text, n) for row in table.rows if (n := _number_in(table, row, column)) is not None]


def _number(cell: Cell) -> float | None:
    found = re.match(r"[+-]?\d+(\.\d+)?", cell.text) if cell.kind in OURS else None
    return float(found[0]) if found else None


def _ends(values: Sequence[Value], unit: str = " %", digits: int = 1) -> str:
    """The lowest and the highest number with their owners."""
    low, high = min(values, key=lambda v: v[1]), max(values, key=lambda v: v[1])
    if low[1] == high[1]:
        return f"{low[1]:.{digits}f}{unit}" + (f" ({low[0]})" if len(values) == 1 else " in every row")
    return f"{low[1]:.{digits}f}{unit} ({low[0]}) to {high[1]:.{digits}f}{unit} ({high[0]})"


def _range(table: Table) -> str:
    """The lowest of all our numbers, for a table without a question of its own."""
    found = [(name, value) for name in table.head for _, value in _values(table, name)]
    return f"{len(table.rows)} rows; our numbers go from {_ends(found, '')}." if found else f"{len(table.rows)} rows."


def _started(text: str) -> str:
    return text[:1].upper() + text[1:]


def _accuracies(table: Table) -> str:
    in_part = [row for row in table.rows if "PGD" in table.head and row[list(table.head).index("PGD")].kind == "bound"]
    whole = replace(table, rows=[row for row in table.rows if row not in in_part])
    parts = [
        f"{words} {_ends(values)}"
        for rows, column, words in (
            (table, "clean", "clean"),
            (whole, "PGD", "under PGD"),
            (replace(table, rows=in_part), "PGD", "under some of the PGD attacks, so at most,"),
            (table, "AA", "under AutoAttack"),
        )
        if (values := _values(rows, column))
    ]
    return f"How many images stay right? {_started('; '.join(parts))}." if parts else ""


def _final_and_intermediate(table: Table) -> str:
    values = _values(table, "difference")
    if not values:
        return ""
    most = max(values, key=lambda v: v[1])
    mean = sum(v for _, v in values) / len(values)
    return (
        "Do attacks on intermediate states break more than the attack on the final one? "
        f"By {mean:.1f} points on average over {len(values)} predictors, by {most[1]:.1f} at most ({most[0]})."
    )


def _transfer(table: Table) -> str:
    own = others = 0
    for row in table.rows:
        numbers = {
            name: n
            for name, cell in zip(table.head, row, strict=True)
            if name.startswith("from ") and (n := _number(cell)) is not None
        }
        mine = numbers.pop(f"from {row[0].text}", None)
        if mine is not None and numbers:
            others += 1
            own += mine <= min(numbers.values())
    return (
        f"Do images made against one model break another? {own} of {others} models are broken most by their own."
        if others
        else ""
    )


def _searches(table: Table) -> str:
    """The lowest accuracy that each search leaves."""
    lowest: dict[str, float] = {}
    for row in table.rows:
        search, _, whose = _text(table, row, "search").partition(", ")
        found = [n for cell in row if (n := _number(cell)) is not None]
        if whose != "paper" and found:
            lowest[search] = min([*found, lowest[search]] if search in lowest else found)
    said = ", ".join(f"{search} leaves {value:.1f} %" for search, value in sorted(lowest.items(), key=lambda v: v[1]))
    return f"Which search breaks most? At its lowest {said}." if said else ""


def _settings(table: Table) -> str:
    values = [
        (f"T_f {_text(table, row, 'T_f')}, {name} of {row[0].text}", n)
        for name in table.head
        if name.startswith("R = ")
        for row in table.rows
        if (n := _number_in(table, row, name)) is not None
    ]
    return f"Which settings of the entropy reduction are best? {_ends(values)}." if values else ""


def _entropies(table: Table) -> str:
    shares = _values(table, "P, mean")
    return (
        f"Does an attack raise the entropy of the prediction? On {_ends(shares)} of the images the clean one is lower."
        if shares
        else ""
    )


def _by_state(table: Table) -> str:
    found = [
        (f"{row[0].text} at {name}", n)
        for name in table.head
        if name.startswith("i = ")
        for row in table.rows
        if (n := _number_in(table, row, name)) is not None and _text(table, row, "whose") != "paper"
    ]
    if not found:
        return ""
    low = min(found, key=lambda v: v[1])
    return f"At which state is the attack strongest? The lowest of all is {low[1]:.1f} % ({low[0]})."


def _states(table: Table) -> str:
    by_owner: dict[str, list[float]] = {}
    for name, value in _values(table, "PGD"):
        by_owner.setdefault(name, []).append(value)
    spans = [(name, max(v) - min(v)) for name, v in by_owner.items() if len(v) > 1]
    if not spans:
        return ""
    name, span = max(spans, key=lambda v: v[1])
    return f"Does the state that predicts matter? Under PGD by {span:.1f} points at most ({name})."


def _differences(table: Table) -> str:
    """Per question how often the interval lies above 0, below it, or holds it.

    Defences that only saw images made against the undefended model are left out, because that favours them. A row with
    an audit is told by its verdict, which is over all attacks at once.
    """
    found: dict[str, Counter[str]] = {}
    audits: dict[str, Counter[str]] = {}
    favoured = 0
    for row in table.rows:
        if any("oblivious" in _text(table, row, whose) for whose in ("without", "with")):
            favoured += 1
            continue
        if (verdict := _text(table, row, "audit")) not in ("", NONE.text):
            audits.setdefault(row[0].text, Counter()).update([verdict])
            continue
        for column in ("PGD", "AA", "union"):
            ends = re.search(r"\[([+-][\d.]+), ([+-][\d.]+)\]", _text(table, row, column))
            if ends:
                low, high = float(ends[1]), float(ends[2])
                counted = found.setdefault(row[0].text, Counter())
                counted.update(["yes" if low > 0 else "no" if high < 0 else "open", column])
    words = (("yes", "better"), ("no", "worse"), ("open", "not told apart"))
    said = []
    for question in dict.fromkeys(row[0].text for row in table.rows if row[0].text in {*audits, *found}):
        parts = []
        if question in audits:
            told = ", ".join(f"{word} ({count})" for word, count in sorted(audits[question].items()))
            parts.append(f"audits say {told}")
        if (count := found.get(question)) is not None:
            told = ", ".join(f"{count[key]} {word}" for key, word in words if count[key])
            beside = "not audited: " if question in audits else ""
            parts.append(f"{beside}{told}{'' if count['AA'] else ', none of them under AutoAttack'}")
        said.append(f"{question} {_started('; '.join(parts))}.")
    if favoured:
        said.append(f"Left out: {favoured} rows whose defence only saw images made against the undefended model.")
    return f"Comparisons under attack. {' '.join(said)}" if said else ""


def _seeds(table: Table) -> str:
    ends = [re.search(r"\(([\d.]+) to ([\d.]+)\)", _text(table, row, "PGD-10")) for row in table.rows]
    spans = [float(found[2]) - float(found[1]) for found in ends if found]
    question = "How far apart are trainings that differ in their seed only?"
    return f"{question} Under PGD-10 up to {max(spans):.1f} points." if spans else ""


def _audits(table: Table) -> str:
    verdicts = Counter(_text(table, row, "verdict") for row in table.rows)
    said = ", ".join(f"{word} ({count})" for word, count in sorted(verdicts.items()))
    return f"What do the audits conclude? {_started(said)}."


def _flags(table: Table) -> str:
    states = Counter(_text(table, row, "state") for row in table.rows)
    raised = sorted({_text(table, row, "flag") for row in table.rows if _text(table, row, "state") == "raised"})
    said = ", ".join(f"{states[word]} {word}" for word in ("raised", "undecided", "cleared") if states[word])
    return f"Which flags are raised? {', '.join(raised) or 'None'}; {said}."


def _attacks(table: Table) -> str:
    values = [
        (f"{_text(table, row, 'attack')} on {row[0].text}", n)
        for row in table.rows
        if (n := _number_in(table, row, "accuracy")) is not None
    ]
    return f"What did the other attacks leave? {_ends(values)}." if values else ""


def _text(table: Table, row: Sequence[Cell], column: str) -> str:
    return row[list(table.head).index(column)].text if column in table.head else ""


def _number_in(table: Table, row: Sequence[Cell], column: str) -> float | None:
    return _number(row[list(table.head).index(column)]) if column in table.head else None


_ANSWERS: dict[str, Callable[[Table], str]] = {
    "table-1": _accuracies,
    "table-2": _final_and_intermediate,
    "table-3": _transfer,
    "table-4": _searches,
    "table-5": _settings,
    "table-6-7": _entropies,
    "table-8": _by_state,
    "states": _states,
    "differences": _differences,
    "seeds": _seeds,
    "audit": _audits,
    "flags": _flags,
    "attacks": _attacks,
}
