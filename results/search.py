"""Short trainings of equal time (results/search/README.md): times the steps of all runs in turns, trains, measures.

    python results/search.py DATA --plan results/search/first/plan.yaml --out runs/search [--only NAME ...]

A run gets as many steps as its plan's seconds allow by its time per step on one thread. Everything is judged on the
1,000 held-out images: clean, PGD-10 from cold starts, for a DEQ also its dynamics. A row of JSON per run goes to
OUT/rows.jsonl, and the last thing printed is the table of all rows there. Runs that have a row are not repeated, and a
stopped training resumes. With the plan's own folder as OUT it only prints what was found.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from dynamics import alive, measure

import robustdeq as rd
from robustdeq.data import load_dataset
from robustdeq.host.provenance import provenance
from robustdeq.host.yaml_files import read_yaml
from robustdeq.recipes import merge, parse_config
from robustdeq.training.validation import correct_counts, pgd_attack

TURNS, STEPS = 3, 18
"""Turns in which the runs are timed, and steps in each; the first and the last step of a turn are not counted."""


def configurations(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The configuration of every run, without its number of steps."""
    runs = {}
    for name, changes in plan["runs"].items():
        changes = deepcopy(changes)
        runs[name] = merge(deepcopy(plan["bases"][changes.pop("base")]), changes)
    return runs


def with_steps(fields: dict[str, Any], steps: int, images: int = 1000) -> rd.TrainConfig:
    """The run with so many steps and one validation, at the end, on so many images."""
    ends = {"schedule": {"steps": steps}, "validation": {"images": images, "every": steps}}
    return parse_config(merge(deepcopy(fields), ends))


def seconds_per_step(runs: dict[str, dict[str, Any]], data: str) -> dict[str, float]:
    """Seconds of the process per training step, the runs taking turns.

    Each step has the least of its times, and a run the mean over its steps: with random states their depths differ.
    """
    least: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for name, fields in runs.items():
            stamps: list[float] = []

            def stamp(_: Any, stamps: list[float] = stamps) -> None:
                stamps.append(time.process_time())

            with tempfile.TemporaryDirectory() as folder:
                rd.Trainer(with_steps(fields, STEPS, images=8), folder, data_root=data, on_step=stamp).fit()
            between = [after - before for before, after in pairwise(stamps[:-1])]  # the last step validates
            least[name] = [min(pair) for pair in zip(between, least.get(name, between), strict=True)]
        print(f"timed, turn {turn + 1} of {TURNS}", flush=True)
    return {name: sum(times) / len(times) for name, times in least.items()}


def judged(model: Any, data: str) -> dict[str, Any]:
    """Accuracies on the held-out images, for a DEQ with its dynamics."""
    images = load_dataset("cifar10", data).validation.subset(slice(0, 1000))
    x, y = images.pixels01(dtype=torch.float32), images.labels
    if isinstance(model, rd.DEQ):
        row = measure(model, x, y, 125)
        return row | {"alive": alive(row)}
    attack = pgd_attack(model, rd.Linf(8 / 255), steps=10, step_size=2 / 255, seed=0)
    clean, robust = correct_counts(model, x, y, [attack], batch_size=125)
    return {"clean_8": clean / len(x), "pgd_8": robust / len(x)}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, families apart, the most robust first."""
    lines = [
        "| run | parameters | steps | seconds | clean | PGD-10 | clean at z^[1], z^[4], z^[8] "
        "| change z^[4] to z^[8] | converged by z^[4], z^[8] | radius | PGD-10, N = 16 | alive |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: ("radius" not in r, -r["pgd_8"])):
        cells = [row["run"], f"{row['parameters']:,}", row["steps"], row["seconds"]]
        cells += [f"{row['clean_8']:.1%}", f"{row['pgd_8']:.1%}"]
        if "radius" in row:
            cells.append(", ".join(f"{100 * row['by_state'][t - 1]:.1f}" for t in (1, 4, 8)) + " %")
            cells.append(f"{row['change']:.1%}")
            cells.append(f"{row['converged'][3]:.0%}, {row['converged'][7]:.0%}")
            cells.append(f"{row['radius'][0]:.2f} (max {row['radius'][1]:.2f})")
            cells += [f"{row['pgd_16']:.1%}", "yes" if row["alive"] else "no"]
        else:
            cells += [""] * 6
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Carry out the plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder that holds cifar-10-batches-py")
    parser.add_argument("--plan", type=Path, required=True, help="which runs, and the seconds of each")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trainings and of rows.jsonl")
    parser.add_argument("--only", nargs="+", help="only these runs of the plan")
    args = parser.parse_args()
    torch.set_num_threads(1)
    plan = read_yaml(args.plan)
    runs = configurations(plan)
    args.out.mkdir(parents=True, exist_ok=True)
    times, rows = args.out / "seconds.json", args.out / "rows.jsonl"
    known = json.loads(times.read_text()) if times.exists() else {}
    if new := {name: fields for name, fields in runs.items() if name not in known}:
        known |= seconds_per_step(new, args.data)
        times.write_text(json.dumps(known, indent=1) + "\n")
    done = {json.loads(line)["run"] for line in rows.read_text().splitlines()} if rows.exists() else set()
    for name in args.only or runs:
        if name in done:
            continue
        config = with_steps(runs[name], round(plan["seconds"] / known[name]))
        began, environment = time.process_time(), provenance()
        best = rd.Trainer(config, args.out / name, data_root=args.data).fit()
        seconds = round(time.process_time() - began)
        model = rd.load(best).eval()
        row = {
            "run": name,
            "changes": plan["runs"][name],
            "parameters": sum(p.numel() for p in model.parameters()),
            "steps": config.schedule.steps,
            "seconds_per_step": round(known[name], 4),
            "seconds": seconds,
            **judged(model, args.data),
            "environment": environment,
        }
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{name}: {row['parameters']:,} parameters, {config.schedule.steps} steps, {seconds} s: "
            f"clean {row['clean_8']:.1%}, PGD-10 {row['pgd_8']:.1%}, alive {row.get('alive', '-')}",
            flush=True,
        )
    print(table([json.loads(line) for line in rows.read_text().splitlines()]))


if __name__ == "__main__":
    main()
