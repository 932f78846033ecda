"""Seconds of a training step with cold and with carried inner attacks, the recipes of this folder taking turns.

python results/carried/seconds.py DATA
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from search import seconds_per_step

from robustdeq.recipes import read_recipe

NAMES = ("living-cold", "living-carried1", "living-carried2", "living-unroll2")

if __name__ == "__main__":
    torch.set_num_threads(1)
    runs = {name: read_recipe(Path(__file__).parent / f"recipes/{name}.yaml") for name in NAMES}
    found = seconds_per_step(runs, sys.argv[1])
    for name, seconds in found.items():
        print(f"{name}: {seconds:.3f} s, {found[NAMES[0]] / seconds:.2f}x")
