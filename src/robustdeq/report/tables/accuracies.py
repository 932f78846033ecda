"""Tables of accuracies: Tables 1 and 2, by the state that predicts, and under every attack outside the grid."""

from __future__ import annotations

from dataclasses import replace

from robustdeq.evaluation.analysis import metrics
from robustdeq.report import paper
from robustdeq.report.results import Result
from robustdeq.report.results.complete import complete, limited, minimum_attacks
from robustdeq.report.results.describe import budget
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
    under,
    union_of_all,
    who,
)
from robustdeq.report.tables.table import APART, NONE, Cell, Table, number, published, share

TABLE_1 = ("clean", "PGD", "AA", "PGD, AA", "union", "paper: clean", "paper: PGD", "paper: AA", "comparable")
OBLIVIOUS = (
    "attacked obliviously: the attacks were made against the undefended model, and the defended one was shown their "
    "images. For the grid that is what the paper does. It has no AA of its own, and its union is over images that "
    "were made for another model: an upper bound that attacks on the defence itself may lower."
)


def table_1(results: list[Result]) -> Table:
    """Accuracy under the grid, AutoAttack, and the union of all attacks."""
    rows = []
    last_baseline = next((r for r in reversed(results) if paper_row(r) == ("PGD-AT", paper.BASE)), None)
    for r in results:
        data, worst, aa = r.manifest.data, minimum(r), autoattack(r)
        words = (r.manifest.model.kind, data.name, str(data.images), r.eps)
        ours = [clean(r), worst, aa, lower(worst, aa), union_of_all(r)]
        theirs = beside(r, paper.TABLE_1.get(paper_row(r), (None,) * 3), "Table 1")
        rows.append([*who(r), *map(Cell, words), *ours, *theirs, because(r)])
        if r is last_baseline:
            rows.append(_as_published())
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


def _as_published() -> list[Cell]:
    """The paper's row of the PGD-AT baseline as it was first published, beneath its rerun."""
    words = ("-", "PGD-AT", f"{paper.BASE}, Yang et al. 2022 as published", "mdeq-large", "cifar10", "10000", "8/255")
    theirs = [published(value, "Table 1", comparable=True) for value in paper.AS_PUBLISHED]
    return [*map(Cell, words), *[NONE] * 5, *theirs, Cell("the paper's alone")]


def table_1_in_part(results: list[Result]) -> Table:
    """Table 1 of results with a part of the grid, shown apart where others have all of it."""
    whole = table_1(results)
    rows = [row for row in whole.rows if row[0].text != "-"]
    note = (
        "A part of the grid, such as its strongest attacks, or none of it. These results are left out of Tables 6 to 8 "
        "and of the table of states."
    )
    title = "Table 1, in part. Accuracy (%) on clean images and under a part of the grid, or none of it"
    return replace(whole, name="table-1-in-part", title=title, rows=rows, notes=(note, *whole.notes))


def _limited(results: list[Result]) -> str:
    """The note on attacks that were run on the first images only."""
    found = [(r, name, count) for r in results for name, count in limited(r).items()]
    cases = ", ".join(f"{name} on the first {count} of {r.name}" for r, name, count in found)
    aa = any(r.manifest.attacks[name].spec.is_standard_autoattack for r, name, _ in found)
    words = " There AA is measured on these images only, whose number stands beside it, and PGD on all." if aa else ""
    return (
        f"Attacks on some of the images: {cases}. The union counts them where they were run, so it is a bound.{words}"
    )


def table_2(results: list[Result]) -> Table:
    """PGD-10 at the final state beside the strongest intermediate-state attack."""
    rows = []
    for r in (r for r in results if r.manifest.dynamic):
        final, worst = ready(r), minimum(r)
        if NONE in (final, worst):
            continue
        gap = number(float(final.text) - float(worst.text), f"{final.where} minus {worst.where}")
        gap = replace(gap, beside=worst.beside)
        theirs = beside(r, paper.TABLE_2.get(paper_row(r), (None,) * 2), "Table 2")
        rows.append([*who(r), final, worst, gap, *theirs, because(r)])
    head = (*WHO, "final", "intermediate", "difference", "paper: final", "paper: intermediate", "comparable")
    title = "Table 2. PGD-10 at the final state and at the worst intermediate state (%)"
    return Table("table-2", title, head, rows, (APART,))


def states(results: list[Result]) -> Table:
    """The two states that the paper's "last but one" may mean, beside the final state."""
    rows = []
    for r in results:
        names = minimum_attacks(r)
        if not r.manifest.dynamic or not r.manifest.all_states or not complete(r, names):
            continue
        for state in r.record.states[-3:]:
            where = f"store {r.label}: predictor {r.predictor}, state {state}"
            unattacked = metrics.clean_accuracy(r.store, predictor=r.predictor, state=state)
            found = metrics.attack_shares(r.store, names, predictor=r.predictor, state=state)
            lowest = min(found, key=lambda name: found[name].value)
            cells = [
                Cell(state if state == "final" else f"z^[{state}]"),
                share(unattacked, f"{where}; clean, share with correct"),
                share(found[lowest], f"{where}; {lowest}, the lowest of {len(names)} attacks"),
            ]
            rows.append([*who(r), *cells])
    note = (
        "The paper predicts from the last state but one: h(z^[8]) if the unrolled final state is the last, h(z^[7]) if "
        "z^[8] is. PGD: the minimum over the grid, whose attacks are judged at each state anew; the interval is the "
        "strongest attack's alone."
    )
    return Table("states", "The state that predicts. Accuracy (%)", (*WHO, "state", "clean", "PGD"), rows, (note,))


def other_attacks(results: list[Result]) -> Table:
    """Accuracy under each attack outside the grid, with its settings."""
    rows = []
    for r in results:
        for spec in (
            record.spec
            for record in r.manifest.attacks.values()
            if not record.spec.in_grid and record.spec.survivors is None
        ):
            settings = {**spec.options, **spec.oracle_options}
            told = ", ".join(f"{k} {budget(v) if k == 'step_size' else v}" for k, v in settings.items())
            words = (r.name, spec.name, spec.group, f"{spec.attack} / {spec.oracle}", budget(spec.eps), told)
            rows.append([*map(Cell, words), under(r, spec.name)])
    head = ("store", "attack", "group", "search / oracle", "eps", "settings", "accuracy")
    return Table("attacks", "Every other attack in the stores (%)", head, rows)
