"""What a carried inner attack costs: accuracies, and carried less cold with the interval over images.

    python results/carried/compare.py

Reads results/stores/carried-*; pairs whose stores are missing are left out.
"""

from __future__ import annotations

from pathlib import Path

from robustdeq.evaluation import Store, metrics, paired

STORES = Path("results/stores")
ATTACKS = ("pgd-ready", "aa-ready")
PAIRS = (
    ("living-cold-short", "living-carried1"),
    ("living-cold", "living-carried1"),
    ("living-cold", "living-carried2"),
    ("cifar10-tiny-pgdat", "tiny-pgdat"),
    ("cifar10-tiny-trades-random", "tiny-trades-random"),
    ("cifar10-tiny-trades-random-seed1", "tiny-trades-random-seed1"),
)


def store(name: str) -> Store | None:
    """The kept store of this model, if it is there."""
    folder = STORES / f"carried-{name}"
    return Store(folder) if folder.exists() else None


def left(found: Store, attack: str) -> str:
    """Accuracy under the attack, if it was run."""
    return str(metrics.union_accuracy(found, [attack])) if attack in found.manifest.attacks else "-"


def less(cold: Store, carried: Store, attack: str) -> str:
    """Carried less cold under the attack, if it was run on both."""
    there = all(attack in found.manifest.attacks for found in (cold, carried))
    return str(paired.difference(cold, carried, [attack])) if there else "-"


def main() -> None:
    """Print both tables."""
    print("| model | clean | PGD-10 | AutoAttack |\n|---|---|---|---|")
    for name in dict.fromkeys(name for pair in PAIRS for name in pair):
        if found := store(name):
            shares = " | ".join(left(found, attack) for attack in ATTACKS)
            print(f"| {name} | {metrics.clean_accuracy(found)} | {shares} |")
    print("\n| carried | less cold | PGD-10 | AutoAttack |\n|---|---|---|---|")
    for cold, carried in PAIRS:
        a, b = store(cold), store(carried)
        if a and b:
            print(f"| {carried} | {cold} | {' | '.join(less(a, b, attack) for attack in ATTACKS)} |")


if __name__ == "__main__":
    main()
