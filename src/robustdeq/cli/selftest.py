"""`robustdeq selftest`: whether this machine computes what it should, in under a minute."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).with_name("golden.npz")
"""A small model with weights and logits of the paper's released code: case B of tests/golden."""


def run(*, device: str = "auto") -> int:
    """Check this machine: golden numbers, independence of the batch, one attack, and resuming after a stop.

    Prints one line per check; the exit code is 1 if one of them fails. Needs no data and no network.

    Args:
        device: auto, cpu, cuda, mps.
    """
    import torch
    from rich.console import Console

    from robustdeq.host.processes import launch

    console = Console(highlight=False, markup=False, soft_wrap=True)
    where = launch(device).device
    # float64 where the device has it: there nothing but a mistake makes a difference
    dtype = torch.float32 if where.type == "mps" else torch.float64
    console.print(f"robustdeq on {where} ({torch.get_num_threads()} CPU threads, torch {torch.__version__}, {dtype})")
    failed = 0
    for name, check in CHECKS.items():
        try:
            words = check(where, dtype)
        except Exception as error:  # a check that cannot run is a finding like any other; the next ones still run
            words, failed = f"FAILED: {type(error).__name__}: {error}", failed + 1
        console.print(f"{name:<22}{words}")
    console.print("all checks passed" if not failed else f"{failed} of {len(CHECKS)} checks failed")
    return int(failed > 0)


def golden_numbers(device: Any, dtype: Any) -> str:
    """Logits at every state and at the end, beside those of the paper's released code."""
    import torch

    model, x, expected = _released(device, dtype)
    with torch.no_grad():
        found = torch.cat([model.trajectory(x).logits, model(x)[None]])
    return _within(found, expected, 1e-9 if dtype == torch.float64 else 1e-4)


def batch_independence(device: Any, dtype: Any) -> str:
    """Every image alone, and all of them in another order."""
    from dataclasses import replace

    import torch

    model, x, _ = _released(device, dtype)
    model.solver = replace(model.solver, batch_coupled=False)
    with torch.no_grad():
        together = model.trajectory(x).logits
        alone = torch.cat([model.trajectory(image[None]).logits for image in x], 1)
        turned = model.trajectory(x.flip(0)).logits.flip(1)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    return f"alone: {_within(alone, together, tolerance)}; another order: {_within(turned, together, tolerance)}"


def one_attack(device: Any, dtype: Any) -> str:
    """PGD on an intermediate state through a defence: in the ball, and the images that the CPU finds."""
    import torch

    import robustdeq as rd

    def attacked(where: Any) -> tuple[Any, Any]:
        model, x, _ = _released(where, dtype)
        y = model(x).argmax(1)
        predictor = rd.EarlyState(rd.EntropyReduction(model, steps=2), state=8)
        oracle = rd.UnrolledState(predictor, state=3, steps=2, damping=0.5)
        result = rd.PGD(threat, steps=3)(oracle, x, y)
        if not threat.contains(result.images, x).all():
            raise AssertionError("an attacked image lies outside of the ball")
        return result.images.cpu(), result.success.cpu()

    threat = rd.Linf(8 / 255)
    here, success = attacked(device)
    there, success_on_cpu = attacked(torch.device("cpu"))
    same = float(((here - there).abs() < 1e-6).double().mean())  # a sign step turns rounding into whole steps
    if same < (0.999 if dtype == torch.float64 else 0.98):
        raise AssertionError(f"{1 - same:.2%} of the attacked pixels differ from those found on the CPU")
    return (
        f"{int(success.sum())} of {len(success)} fooled (CPU: {int(success_on_cpu.sum())}), {same:.2%} of pixels equal"
    )


def resumed_training(device: Any, dtype: Any) -> str:
    """A training that is stopped and resumed ends with the weights of one that was not."""
    import torch
    from safetensors.torch import load_file

    from robustdeq.recipes import merge, parse_config, read_recipe
    from robustdeq.training.trainer import Progress, Trainer

    short = {
        "objective": {"steps": 1},
        "schedule": {"steps": 4, "batch_size": 12, "pretrain_steps": 1},
        "validation": {"images": 20, "steps": 1},
        "checkpoint_every": 2,
    }
    config = parse_config(merge(read_recipe("digits-nano-trades-random"), short))

    def stop(now: Progress) -> None:
        if now.step == 3:
            raise InterruptedError

    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder, "whole"), Path(folder, "parts")
        Trainer(config, whole, device=device.type).fit()
        try:
            Trainer(config, parts, device=device.type, report=stop).fit()
        except InterruptedError:
            Trainer(config, parts, device=device.type).fit()
        else:
            raise AssertionError("the training could not be stopped")
        a, b = (load_file(path / "last" / "model.safetensors") for path in (whole, parts))
    if not all(torch.equal(a[name], b[name]) for name in a):
        worst = max(float((a[name] - b[name]).abs().max()) for name in a if a[name].numel())
        raise AssertionError(f"weights differ by up to {worst:.2g} (on GPUs: see deterministic algorithms in torch)")
    return "stopped after 3 of 4 steps and resumed: every weight is the same bit for bit"


def resumed_evaluation(device: Any, dtype: Any) -> str:
    """An evaluation that is stopped and resumed stores the bytes of one that was not."""
    import robustdeq as rd

    model, x, _ = _released(device, dtype)
    y = model(x).argmax(1)

    def stop(now: Any) -> None:
        raise InterruptedError

    def store(out: Path, **options: Any) -> None:
        predictor = rd.EarlyState(model, state=8)
        rd.evaluate(predictor, (x, y), suite="quick", out=out, batch_size=2, shard_size=2, name="selftest", **options)

    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder, "whole"), Path(folder, "parts")
        store(whole)
        before = len(list(whole.rglob("shard-*.parquet")))
        try:
            store(parts, report=stop)
        except InterruptedError:
            before = len(list(parts.rglob("shard-*.parquet")))
            store(parts)
        files = sorted(path.relative_to(whole) for path in whole.rglob("shard-*.parquet"))
        if not before < len(files):
            raise AssertionError(f"the evaluation was stopped too late: {before} of {len(files)} files were there")
        different = [str(name) for name in files if (whole / name).read_bytes() != (parts / name).read_bytes()]
    if different:
        raise AssertionError(f"{len(different)} of {len(files)} files differ, e.g. {different[:1]}")
    return f"stopped and resumed: all {len(files)} files are the same byte for byte"


Check = Callable[[Any, Any], str]
CHECKS: dict[str, Check] = {
    "golden numbers": golden_numbers,
    "batch independence": batch_independence,
    "one attack": one_attack,
    "resumed training": resumed_training,
    "resumed evaluation": resumed_evaluation,
}


def _released(device: Any, dtype: Any) -> tuple[Any, Any, Any]:
    """The golden model, its images, and the released code's logits at the states and at the end."""
    import numpy as np
    import torch

    from robustdeq.models import compat

    with np.load(GOLDEN, allow_pickle=False) as stored:
        arrays = dict(stored)
    weights = {k.removeprefix("weights/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("weights/")}
    model = compat.load_released(json.loads(str(arrays["config_json"])), weights).to(dtype=dtype, device=device)
    x = (torch.from_numpy(arrays["x_uint8"]).double() / 255).to(dtype=dtype, device=device)
    return model.eval(), x, torch.from_numpy(arrays["undef_logits"])


def _within(found: Any, expected: Any, tolerance: float) -> str:
    """The largest difference relative to the largest number; more than the tolerance is an error."""
    found, expected = found.double().cpu(), expected.double().cpu()
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= tolerance:
        raise AssertionError(f"largest difference {difference:.2g}, tolerance {tolerance:.0e}")
    return f"largest difference {difference:.1e} (tolerance {tolerance:.0e})"
