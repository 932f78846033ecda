"""How many steps each recipe may take in equal time: times their steps in turns, on one thread.

    python results/pace.py DATA RECIPE... [--seconds 1800]

Time per step is that of search.py: the mean over steps of the least of three turns, in seconds of the process.
Validations are not counted.
"""

from __future__ import annotations

import argparse

import torch
from search import seconds_per_step

from robustdeq.recipes import read_recipe


def main() -> None:
    """Print a row per recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder that holds cifar-10-batches-py")
    parser.add_argument("recipes", nargs="+", help="names of recipes or YAML files")
    parser.add_argument("--seconds", type=float, default=1800, help="seconds of one core that a training may take")
    args = parser.parse_args()
    torch.set_num_threads(1)
    times = seconds_per_step({name: read_recipe(name) for name in args.recipes}, args.data)
    print(f"| recipe | seconds per step | steps in {args.seconds:.0f} s |\n|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.3f} | {args.seconds / seconds:.0f} |")


if __name__ == "__main__":
    main()
