"""Writes the model cards of the shipped checkpoints, README.md in their folders, from the stores of results/.

python results/cards.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from answers import COLUMNS, METHODS, right, share

import robustdeq as rd
from robustdeq.evaluation import Store
from robustdeq.models.hub import model_card

STORES = Path("results/stores")
CHECKPOINTS = Path("src/robustdeq/checkpoints")


@dataclass(frozen=True)
class Accuracies:
    """Accuracies of a store as the text of a card."""

    store: Store

    def table(self) -> str:
        """A line per attack, on the first test images."""
        lines = []
        for column in COLUMNS:
            if (found := right(self.store, column)) is not None:
                lines.append(f"{column:12} {share(found)} test images")
        return "\n".join(lines)


def main() -> None:
    """One card per method, of seed 0."""
    for method in METHODS:
        name = f"cifar10-tiny-{method}"
        model = rd.load(name)
        numbers = Accuracies(Store(STORES / f"{method}-seed0"))
        card = model_card(name, model.model_name or "model", model.metadata, (), [numbers])
        (CHECKPOINTS / name / "README.md").write_text(card)


if __name__ == "__main__":
    main()
