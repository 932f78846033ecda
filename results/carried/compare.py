"""What a carried inner attack costs: accuracies, and carried less cold with the interval over images.

    python results/carried/compare.py

Reads the stores here and those of results/frozen; models whose stores are missing are left out. All numbers are over
the first 500 test images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.analysis.statistics import bootstrap_difference, wilson

STORES = Path("results/carried/stores"), Path("results/frozen/stores")
IMAGES = 500
COLUMNS = (("clean",), ("pgd-ready",), ("aa-ready", "aa-strongest"))
"""The attacks of a column: the first that the store has. A cold model of the recipes has the stronger AutoAttack, along
the strongest oracle of its grid."""
PAIRS = (
    ("living-cold", "living-carried1"),
    ("living-cold", "living-carried2"),
    ("living-cold-short", "living-carried1"),
    ("pgdat", "tiny-pgdat"),
    ("trades-random", "tiny-trades-random"),
    ("cifar10-tiny-trades-random-seed1", "tiny-trades-random-seed1"),
    ("living-carried1", "living-unroll2"),
    ("living-cold", "living-unroll2"),
)


def survivors(name: str, column: tuple[str, ...]) -> NDArray[np.bool_] | None:
    """Which images are right, clean and under the column's attack; None where it was not run."""
    folder = next((folder / name for folder in STORES if (folder / name).exists()), None)
    if folder is None:
        return None
    store = Store(folder)
    attacks = [attack for attack in column if attack in store.manifest.attacks and store.complete(attack)][:1]
    if not attacks and column != ("clean",):
        return None
    return metrics.outcomes(store, attacks)[0].all(1)[:IMAGES]


def main() -> None:
    """Print both tables."""
    head = "| clean | PGD-10 | AutoAttack |\n|---|"
    print(f"| store {head}{'---|' * 3}")
    for name in dict.fromkeys(name for pair in PAIRS for name in pair):
        found = [survivors(name, column) for column in COLUMNS]
        shares = ["" if right is None else str(wilson(int(right.sum()), len(right))) for right in found]
        print(f"| {name} | {' | '.join(shares)} |")
    print(f"\n| store | less {head}---|{'---|' * 3}")
    for cold, carried in PAIRS:
        both = [(survivors(cold, column), survivors(carried, column)) for column in COLUMNS]
        differences = ["" if a is None or b is None else str(bootstrap_difference(a, b)) for a, b in both]
        print(f"| {carried} | {cold} | {' | '.join(differences)} |")


if __name__ == "__main__":
    main()
