"""Tables 1 and 2: accuracy on clean images and under the paper's attacks."""

from __future__ import annotations

from dataclasses import replace

from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import limited
from robustdeq.report.results.match import paper_row
from robustdeq.report.tables.numbers import (
    WHO,
    autoattack,
    because,
    beside,
    clean,
    lower,
    minimum,
    ready,
    union_of_all,
    who,
)
from robustdeq.report.tables.table import APART, NONE, Cell, Table, number

TABLE_1 = ("clean", "PGD", "AA", "PGD, AA", "union", "paper: clean", "paper: PGD", "paper: AA", "comparable")
OBLIVIOUS = (
    "attacked obliviously: the attacks were made against the undefended model, and the defended one was shown their "
    "images. For the grid that is what the paper does. It has no AA of its own, and its union is over images that "
    "were made for another model: an upper bound that attacks on the defence itself may lower."
)


def table_1(results: list[Result]) -> Table:
    """Accuracy under the grid, AutoAttack, and the union of all attacks."""
    rows = []
    for r in results:
        data, worst, aa = r.manifest.data, minimum(r), autoattack(r)
        words = (r.manifest.model.kind, data.name, str(data.images), r.eps)
        ours = [clean(r), worst, aa, lower(worst, aa), union_of_all(r)]
        theirs = beside(r, paper.TABLE_1.get(paper_row(r), (None,) * 3), "Table 1")
        rows.append([*who(r), *map(Cell, words), *ours, *theirs, because(r)])
    return Table(
        "table-1",
        "Table 1. Accuracy (%) on clean images and under attack",
        (*WHO, "model", "data", "images", "eps", *TABLE_1),
        rows,
        (
            "PGD: the minimum over the grid of intermediate-state attacks of the accuracy over the data set, as the "
            "paper reports it. AA: AutoAttack with standard budgets. PGD, AA: the lower of the two. union: per image "
            "the worst case over every attack in the store, stricter, and dependent on which attacks were run.",
            *([OBLIVIOUS] if any(r.oblivious for r in results) else []),
            *([_limited(results)] if any(map(limited, results)) else []),
            APART,
        ),
    )


def table_1_in_part(results: list[Result]) -> Table:
    """Table 1 of results with a part of the grid, shown apart where others have all of it."""
    whole = table_1(results)
    note = "A part of the grid, such as its strongest attacks, or none of it: Tables 6 to 8 and the states are without."
    title = "Table 1, in part. Accuracy (%) on clean images and under a part of the grid, or none of it"
    return replace(whole, name="table-1-in-part", title=title, notes=(note, *whole.notes))


def _limited(results: list[Result]) -> str:
    """The note on attacks that were run on the first images only."""
    found = [(r, name, count) for r in results for name, count in limited(r).items()]
    cases = ", ".join(f"{name} on the first {count} of {r.name}" for r, name, count in found)
    aa = any(r.manifest.attacks[name].spec.is_standard_autoattack for r, name, _ in found)
    words = " Such an AA is over these images, PGD beside it over all." if aa else ""
    return f"Attacks on some of the images: {cases}. The union counts them where they were run.{words}"


def table_2(results: list[Result]) -> Table:
    """PGD-10 at the final state beside the strongest intermediate-state attack."""
    rows = []
    for r in (r for r in results if r.manifest.dynamic):
        final, worst = ready(r), minimum(r)
        if NONE in (final, worst):
            continue
        gap = number(float(final.text) - float(worst.text), f"{final.where} minus {worst.where}")
        theirs = beside(r, paper.TABLE_2.get(paper_row(r), (None,) * 2), "Table 2")
        rows.append([*who(r), final, worst, gap, *theirs, because(r)])
    head = (*WHO, "final", "intermediate", "difference", "paper: final", "paper: intermediate", "comparable")
    title = "Table 2. PGD-10 at the final state and at the worst intermediate state (%)"
    return Table("table-2", title, head, rows, (APART,))
