"""The paper's tables and figures, so that each is shown or listed as missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from robustdeq.report.missing.experiments import Missing

EVALUATE = "robustdeq evaluate CKPT --suite {} --out DIR"
ITEMS = {
    "Table 1": ("an evaluation by the grid and AutoAttack", EVALUATE.format("paper")),
    "Table 2": ("PGD-10 at the final state and the grid, on one DEQ", EVALUATE.format("paper")),
    "Table 3": (
        "images made against one DEQ, shown to another",
        EVALUATE.format("transfer") + " && robustdeq evaluate OTHER --suite transfer --sources DIR --out DIR2",
    ),
    "Table 4": (
        "PGD, APGD-CE and Square on TRADES with both methods",
        EVALUATE.format("table4 --defence entropy"),
    ),
    "Table 5": ("one grid, scored on several settings (T_f, R) of the defence", EVALUATE.format("settings")),
    "Table 6": ("the grid on an undefended DEQ, without --union", EVALUATE.format("grid")),
    "Table 7": ("the grid on an undefended DEQ, without --union", EVALUATE.format("grid")),
    "Table 8": ("the grid on a DEQ, without --union", EVALUATE.format("grid")),
    "Table 9": ("the speed of training", "robustdeq bench train --json FILE"),
    "Table 10": ("the speed of defended predictions", "robustdeq bench defence --json FILE"),
    "Fig. 2": ("entropies and residuals under attack, of an undefended DEQ", EVALUATE.format("quick")),
    "Fig. 3a": ("the grid on a DEQ, without --union", EVALUATE.format("grid")),
    "Fig. 3b": (
        "a grid scored on a DEQ with the entropy reduction and without",
        EVALUATE.format("grid --defence entropy"),
    ),
    "Fig. 3c": ("deviations of the states under attack, of a DEQ", EVALUATE.format("quick")),
    "Fig. 4": ("a training with validation", "robustdeq train --recipe NAME --out DIR"),
    "Fig. 5": ("the grid on a DEQ, without --union", EVALUATE.format("grid")),
    "Fig. 6": ("trainings with two weights of the Jacobian penalty", "robustdeq train --jacobian.weight W --out DIR"),
}
"""What docs/method.md lists in section 6: what each needs, and a command for it."""


def named(text: str) -> set[str]:
    """The items that a title or an entry of Missing is about: "Tables 6 and 7. ...", "Figs. 2, 3c"."""
    return {
        f"{kind}{'.' if kind == 'Fig' else ''} {name}"
        for kind, names in re.findall(r"(Table|Fig)s?\.? ((?:\d+[abc]?(?:, (?=\d)| and (?=\d))?)+)", text)
        for name in re.findall(r"\d+[abc]?", names)
    }


def rest(titles: Iterable[str], missing: Iterable[Missing]) -> list[Missing]:
    """The items that neither a title of what is shown names nor an entry of what is missing."""
    known = {item for text in (*titles, *(m.item for m in missing)) for item in named(text)}
    return [Missing(item, f"needs {what}", command) for item, (what, command) in ITEMS.items() if item not in known]
