"""What the stores of results/ answer: accuracies by training, and differences over images and seeds.

    python results/answers.py [--stores results/stores]

A store is named after its model and seed, such as trades-random-seed1. Trainings without a store are left out.
Accuracies are of the deployed predictor, on the first test images, as many as were attacked. 95 % intervals in
brackets: of one training over images, of a difference over images and seeds (`hierarchical_difference`), or over images
alone where a method was trained only once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.analysis.seeds import hierarchical_difference
from robustdeq.evaluation.analysis.statistics import bootstrap_difference, wilson

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


def right(store: Store, column: str) -> NDArray[np.bool_] | None:
    """Which of the first images are right, clean and under the column's attack, up to where it was run; or None."""
    names = [name for name in COLUMNS[column] if name in store.manifest.attacks][:1]
    if column != "clean" and not names:
        return None
    correct, tried = metrics.outcomes(store, names)
    count = len(tried) if tried.all() else int(tried.all(1).argmin())
    return correct.all(1)[:count] if count else None


def share(correct: NDArray[np.bool_] | None) -> str:
    """An accuracy with its interval and the number of images; nothing where there is none."""
    return "" if correct is None else f"{wilson(int(correct.sum()), len(correct))} of {len(correct):,}"


def difference(a: list[NDArray[np.bool_]], b: list[NDArray[np.bool_]]) -> str:
    """Method b less method a, an array per training, on the images that all of them have; nothing where one has none.

    Over images and seeds; where a method has one training, over images alone, with the first of the other.
    """
    if not a or not b:
        return ""
    count = min(map(len, [*a, *b]))
    trainings = 1 if min(len(a), len(b)) == 1 else None
    left, right = (np.stack([outcomes[:count] for outcomes in method[:trainings]]) for method in (a, b))
    if trainings == 1:
        found = bootstrap_difference(left[0], right[0])
    else:
        found = hierarchical_difference(left, right)
    value, low, high = (100 * part for part in (found.value, found.low, found.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}] ({len(left)} and {len(right)} trainings, {count:,} images)"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=Path, default=Path("results/stores"))
    args = parser.parse_args()
    stores = {method: trainings(args.stores, method) for method in METHODS}
    head = f"{' | '.join(COLUMNS)} |"
    print(f"| training | seed | {head}\n|---|---|{'---|' * len(COLUMNS)}")
    outcomes: dict[tuple[str, str], list[NDArray[np.bool_]]] = {(m, c): [] for m in METHODS for c in COLUMNS}
    for method, seeds in stores.items():
        for seed, store in seeds.items():
            found = {column: right(store, column) for column in COLUMNS}
            print(f"| {method} | {seed} | {' | '.join(map(share, found.values()))} |")
            for column, correct in found.items():
                outcomes[method, column] += [] if correct is None else [correct]
    print(f"\n| difference, points | {head}\n|---|{'---|' * len(COLUMNS)}")
    for name, a, b in PAIRS:
        print(f"| {name} | {' | '.join(difference(outcomes[a, column], outcomes[b, column]) for column in COLUMNS)} |")


if __name__ == "__main__":
    main()
