"""`robustdeq bench evaluate`: the grid of 144 attacks, or AutoAttack, on a checkpoint, per image."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.bench.autoattack import autoattack
from robustdeq.cli.bench.measure import COUNTED, macs_of_f, multiply_adds
from robustdeq.cli.evaluate import describe
from robustdeq.cli.progress import left
from robustdeq.data import load_dataset
from robustdeq.defences import EarlyState
from robustdeq.evaluation import evaluate as run_suite
from robustdeq.evaluation.run.stacking import bundles
from robustdeq.evaluation.suites.attacks import DAMPINGS, UNROLLINGS
from robustdeq.evaluation.suites.attacks import grid as grid_specs
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.models import MDEQ
from robustdeq.plain import default_layout, grid
from robustdeq.recipes import parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training.trainer import Trainer

RECIPE = "digits-nano-trades-random"
STRIDE = 6
BATCH = 100
ENOUGH = 100
"""Number of images beyond which the time per image does not change, if every image is attacked."""


def evaluate(
    checkpoints: list[str], attack: str, images: int, data_root: Path | None, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Records of seconds per image for the whole grid: ours with every image and with `--union`, and plain.

    The plain implementation has no store and attacks every image; it runs every sixth attack, and its time is scaled
    up. Runs that attack every image are measured on the first 100 images. Without a checkpoint a model is trained
    first: with random weights most images are misclassified, and leaving them out would flatter us.
    """
    if checkpoints:
        return [record for name in checkpoints for record in _one(name, name, attack, images, data_root, say)]
    with tempfile.TemporaryDirectory() as folder:
        say(f"training {RECIPE} to have something to attack")
        best = Trainer(parse_config(read_recipe(RECIPE)), Path(folder) / "run").fit()
        return _one(str(best), RECIPE, attack, images, None, say)


def _one(
    ckpt: str, name: str, attack: str, images: int, data_root: Path | None, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    checkpoint = resolve(ckpt)
    model, eps = checkpoint.predictor, checkpoint.required("eps")
    if not isinstance(model, MDEQ):
        raise ValueError(f"bench evaluate measures MDEQ models, {name} is a {type(model).__name__}")
    dataset = checkpoint.required("dataset")
    data = load_dataset(dataset, data_root, **checkpoint.options_for(dataset)).test
    x, y = data.pixels[:images].float() / 255, data.labels[:images]
    if attack == "autoattack":
        return autoattack(model, name, x, y, eps, say)
    taken: dict[str, tuple[float, int, int, float]] = {}
    deployed = EarlyState(model, state=model.solver.max_steps)

    def run(label: str, union: bool, count: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run_suite(
                deployed,
                (x[:count], y[:count]),
                "grid",
                folder,
                threat=Linf(eps),
                batch_size=BATCH,
                union=union,
                all_states=False,
                report=lambda now: say(f"{name}: ours, {label}: {describe(now)}"),
            )

    for label, union, count in (("union", True, len(x)), ("every image", False, min(ENOUGH, len(x)))):
        begin = time.perf_counter()
        run(label, union, count)
        seconds, few = (time.perf_counter() - begin) / count, min(COUNTED, count)
        rows = min(BATCH, count) if union else _rows(deployed, eps, count)
        macs = multiply_adds(partial(run, f"{label}, counting multiply-adds", union, few))
        taken[label] = seconds, count, rows, macs / few / macs_of_f(model, x[:1])
    plain_seconds = _plain(default_layout(model).eval(), x[:ENOUGH], y[:ENOUGH], eps, say)
    return [
        {
            "name": f"grid, {label}",
            "model": name,
            "batch": rows,
            "plain_batch": min(BATCH, count),
            "images": count,
            "ours": ours,
            "plain": plain_seconds,
            "speedup": plain_seconds / ours,
            "samples_per_second": 1 / ours,
            "f_equivalents": counted,
        }
        for label, (ours, count, rows, counted) in taken.items()
    ]


def _rows(deployed: EarlyState, eps: float, count: int) -> int:
    """Rows of our largest batch: if there are few images, attacks of the grid share batches."""
    subject = Subject(deployed)
    specs = grid_specs(Context(subject, Linf(eps)))
    together = max(map(len, bundles(specs, subject, shard_size=count, batch_size=BATCH)))
    return min(BATCH, together * count)


def _plain(model: MDEQ, x: Tensor, y: Tensor, eps: float, say: Callable[[str], None]) -> float:
    """Seconds per image of the whole grid, estimated from every sixth attack."""
    states = range(1, model.solver.max_steps + 1)
    settings = [(i, k, damping) for damping in DAMPINGS for i in states for k in UNROLLINGS]
    chosen = settings[STRIDE // 2 :: STRIDE]
    generator = torch.Generator().manual_seed(0)
    begin = time.perf_counter()
    for done, (i, k, damping) in enumerate(chosen):
        say(f"plain: {done} of {len(chosen)} attacks{left(done, len(chosen), time.perf_counter() - begin)}")
        for images, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
            noise = (2 * torch.rand(images.shape, generator=generator) - 1) * eps
            start = (images + noise).clamp(0, 1)
            grid.attack(model, images, labels, start, i, k, damping, eps=eps)
    return (time.perf_counter() - begin) / len(x) * len(settings) / len(chosen)
