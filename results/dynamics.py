"""How alive the dynamics of DEQs are, on held-out training images (or --test): one row of a table per checkpoint.

    python results/dynamics.py DATA runs/search/*/best [--images 500] [--test] [--json FILE]

Accuracies by state are those of head(z^[t]). The columns with N = 8 and 16 judge the model's own prediction, which
reads the unrolled final state. PGD-10 (eps 8/255, steps of 2/255) follows the model's own gradient, from cold starts.
A DEQ is called alive if

- the accuracy at z^[1] is at least 5 points below that at z^[8],
- the median relative change from z^[4] to z^[8] is above 1 %,
- with N = 16 instead of 8 the accuracy, clean and attacked, falls by at most one point.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import robustdeq as rd
from robustdeq.data import load_dataset
from robustdeq.evaluation.analysis.statistics import wilson
from robustdeq.training.validation import correct_counts, pgd_attack

HEAD = """\
| checkpoint | clean at z^[1], z^[2], z^[4], z^[8] | change z^[4] to z^[8] | converged at z^[8] | radius \
| clean, N = 8 / 16 | PGD-10, N = 8 / 16 | alive | seconds |
|---|---|---|---|---|---|---|---|---|"""


def measure(model: rd.DEQ, x: torch.Tensor, y: torch.Tensor, batch_size: int) -> dict[str, Any]:
    """Accuracies along the states, changes of the states, the spectral radius at z^[8]."""
    right, change, converged, radius = [], [], [], []
    for begin in range(0, len(x), batch_size):
        images, labels = x[begin : begin + batch_size], y[begin : begin + batch_size]
        with torch.no_grad():
            tr = model.trajectory(images)
        right.append(tr.logits.argmax(-1) == labels)
        change.append((tr.states[7] - tr.states[3]).norm(dim=1) / tr.states[7].norm(dim=1))
        converged.append(tr.residual <= model.tol)
        if begin == 0:
            f, _ = model.begin(images[:32])
            found = rd.spectral_radius(f, tr.states[7, :32], generator=torch.Generator().manual_seed(0))
            radius = [float(found.median()), float(found.max())]
    correct = torch.cat(right, 1).float().mean(1)
    return {
        "by_state": [round(float(a), 4) for a in correct],
        "change": float(torch.cat(change).median()),
        "converged": [round(float(c), 3) for c in torch.cat(converged, 1).float().mean(1)],
        "radius": radius,
        **attacked(model, x, y, batch_size),
    }


def attacked(model: rd.DEQ, x: torch.Tensor, y: torch.Tensor, batch_size: int) -> dict[str, float]:
    """Accuracy, clean and under PGD-10, with N = 8 and N = 16 solver steps."""
    result: dict[str, float] = {}
    shallow = model.solver
    for steps in (8, 16):
        model.solver = replace(shallow, max_steps=steps)
        attack = pgd_attack(model, rd.Linf(8 / 255), steps=10, step_size=2 / 255, seed=0)
        clean, robust = correct_counts(model, x, y, [attack], batch_size=batch_size)
        result |= {f"clean_{steps}": clean / len(x), f"pgd_{steps}": robust / len(x)}
    model.solver = shallow
    return result


def alive(row: dict[str, Any]) -> bool:
    """Whether the dynamics do something that more steps do not undo."""
    falls = max(row["clean_8"] - row["clean_16"], row["pgd_8"] - row["pgd_16"])
    return row["by_state"][7] - row["by_state"][0] >= 0.05 and row["change"] > 0.01 and falls <= 0.01


def run_name(checkpoint: str) -> str:
    """The folder of the run, or the checkpoint itself."""
    path = Path(checkpoint)
    return path.parent.name if path.name in ("best", "last") else path.name


def main() -> None:
    """Measure the checkpoints of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder that holds cifar-10-batches-py")
    parser.add_argument("checkpoints", nargs="+", help="checkpoint folders or shipped names")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=125)
    parser.add_argument("--test", action="store_true", help="test images instead of held-out training images")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    args = parser.parse_args()
    dataset = load_dataset("cifar10", args.data)
    images = (dataset.test if args.test else dataset.validation).subset(slice(args.images))
    x, y = images.pixels01(dtype=torch.float32), images.labels
    print(HEAD)
    rows = []
    for name in args.checkpoints:
        began = time.process_time()
        model = rd.load(name).eval()
        row = {"checkpoint": str(name), "images": len(x), **measure(model, x, y, args.batch_size)}
        row |= {"alive": alive(row), "seconds": round(time.process_time() - began)}
        rows.append(row)
        states = ", ".join(f"{row['by_state'][t - 1]:.1%}" for t in (1, 2, 4, 8))
        pgd = wilson(round(row["pgd_8"] * len(x)), len(x))
        print(
            f"| {run_name(name)} | {states} | {row['change']:.1%} | {row['converged'][7]:.0%} "
            f"| {row['radius'][0]:.2f} (max {row['radius'][1]:.2f}) | {row['clean_8']:.1%} / {row['clean_16']:.1%} "
            f"| {pgd.value:.1%} [{pgd.low:.1%}, {pgd.high:.1%}] / {row['pgd_16']:.1%} "
            f"| {'yes' if row['alive'] else 'no'} | {row['seconds']} |",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
