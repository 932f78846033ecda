"""What the stores of results/ answer: accuracies by training, and differences over images and seeds.

    python results/answers.py [--stores results/stores] [--images 1000]

A store is named after its model and seed, such as trades-random-seed1. Trainings without a store are left out, and so
are differences for which a method has fewer than two. Accuracies are of the deployed predictor, 95 % intervals in
brackets: of one training over images, of a difference over images and seeds (`metrics.hierarchical_difference`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.analysis.seeds import hierarchical_difference
from robustdeq.evaluation.analysis.statistics import wilson

METHODS = ("pgdat", "pgdat-random", "trades", "trades-random", "resnet-pgdat", "resnet-trades")
PAIRS = (
    ("Sec. 3.3 with PGD-AT", "pgdat", "pgdat-random"),
    ("Sec. 3.3 with TRADES", "trades", "trades-random"),
    ("DEQ less ResNet, PGD-AT", "resnet-pgdat", "pgdat"),
    ("DEQ + random less ResNet, PGD-AT", "resnet-pgdat", "pgdat-random"),
    ("DEQ less ResNet, TRADES", "resnet-trades", "trades"),
    ("DEQ + random less ResNet, TRADES", "resnet-trades", "trades-random"),
)
COLUMNS = {"clean": (), "PGD-10": ("pgd-ready", "pgd-direct"), "AutoAttack": ("aa-strongest", "aa-ready", "aa")}
"""What is counted, and the names its attack may have: the first that a store has."""


def trainings(folder: Path, method: str) -> dict[int, Store]:
    """The stores of a method by seed."""
    found = {int(path.name.rpartition("-seed")[2]): Store(path) for path in folder.glob(f"{method}-seed?")}
    return dict(sorted(found.items()))


def right(store: Store, column: str, images: int) -> NDArray[np.bool_] | None:
    """Which images are right, clean and under the column's attack; None where it was not run on so many."""
    names = [name for name in COLUMNS[column] if name in store.manifest.attacks and store.complete(name)][:1]
    if column != "clean" and not names:
        return None
    correct, tried = metrics.outcomes(store, names)
    return correct.all(1)[:images] if tried[:images].all() and len(tried) >= images else None


def difference(a: dict[int, Store], b: dict[int, Store], column: str, images: int) -> str:
    """Method b less method a, or nothing where a method has fewer than two trainings with this column."""
    left, right_ = (
        [found for store in stores.values() if (found := right(store, column, images)) is not None] for stores in (a, b)
    )
    if min(len(left), len(right_)) < 2:
        return ""
    found = hierarchical_difference(np.stack(left), np.stack(right_))
    value, low, high = (100 * part for part in (found.value, found.low, found.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] ({len(left)} and {len(right_)} seeds)"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=Path, default=Path("results/stores"))
    parser.add_argument("--images", type=int, default=1000, help="the first test images, as many")
    args = parser.parse_args()
    stores = {method: trainings(args.stores, method) for method in METHODS}
    head = f"{' | '.join(COLUMNS)} |"
    print(f"| training | seed | {head}\n|---|---|{'---|' * len(COLUMNS)}")
    for method, seeds in stores.items():
        for seed, store in seeds.items():
            found = [right(store, column, args.images) for column in COLUMNS]
            shares = ["" if r is None else str(wilson(int(r.sum()), len(r))) for r in found]
            print(f"| {method} | {seed} | {' | '.join(shares)} |")
    print(f"\n| difference, points | {head}\n|---|{'---|' * len(COLUMNS)}")
    for name, a, b in PAIRS:
        found = [difference(stores[a], stores[b], column, args.images) for column in COLUMNS]
        print(f"| {name} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()
