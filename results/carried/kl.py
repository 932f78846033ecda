"""What inner attacks up the KL divergence of TRADES and up the cross-entropy leave of a model, on 250 held-out images.

python results/carried/kl.py DATA [checkpoint]
"""

import sys
from dataclasses import replace

import torch

import robustdeq as rd
from robustdeq.data import load_dataset
from robustdeq.recipes import parse_config, read_recipe
from robustdeq.training import Draws
from robustdeq.training.validation import correct_counts, inner_attack, pgd_attack

NAME = "results/frozen/checkpoints/cifar10-tiny-trades-random"
SETTINGS = {
    "KL, cold": {},
    "KL, carried": {"inner": "carried"},
    "KL, cold, ten steps of 2/255": {"steps": 10, "step_size": "2/255"},
    "cross-entropy, cold": {"kind": "pgdat"},
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    images = load_dataset("cifar10", sys.argv[1]).validation.subset(slice(0, 250))
    x, y = images.pixels01(dtype=torch.float32), images.labels
    model = rd.load(sys.argv[2] if len(sys.argv) > 2 else NAME).eval()
    objective = parse_config(read_recipe("results/frozen/recipes/tiny-trades-random.yaml")).objective
    attacks = [pgd_attack(model, rd.Linf(8 / 255), steps=10, step_size=2 / 255, seed=0)]
    for changes in SETTINGS.values():
        attacks += [inner_attack(model, replace(objective, **changes).build(), Draws(0, step)) for step in (1, 2)]
    clean, pgd, *left = (count / len(x) for count in correct_counts(model, x, y, attacks, batch_size=125))
    print(f"clean {clean:.1%}, PGD-10 {pgd:.1%}")
    for name, first, second in zip(SETTINGS, left[::2], left[1::2], strict=True):
        print(f"{name}: {first:.1%} and {second:.1%} (depths of steps 1 and 2)")
