"""`robustdeq predict`: what a model makes of image files."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Literal

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from robustdeq.cli.checkpoints import Checkpoint, blaming, defence_budget, resolve
from robustdeq.cli.deploy import deploy
from robustdeq.cli.progress import saying
from robustdeq.data import DataError, DataNotFoundError
from robustdeq.data.photos import Photo, read_photo
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import DynamicPredictor, entropy
from robustdeq.solve import Status

BATCH = 64
BLOCKS = "▁▂▃▄▅▆▇█"

Record = dict[str, Any]


def run(
    ckpt: str,
    image: list[Path],
    *,
    defence: Literal["none", "entropy"] = "none",
    state: int | Literal["final"] | None = None,
    as_json: bool = False,
) -> int:
    """Classify image files: class, confidence, entropy along the states, converged or not.

    Of any file the first frame counts, turned as its EXIF orientation says, transparency over white. An image of
    another size than the model's is resized with antialiasing; one of other proportions gives its largest centred
    part. What was done to a file stands beside its answer. A file that cannot be read does not stop the others; the
    exit code is then 1.

    Args:
        ckpt: What predicts.
        image: The files.
        defence: entropy purifies the input between solver steps (Sec. 3.2), within the checkpoint's own budget eps.
        state: Predict from head(z^[state]), or from the final unrolled state; as `evaluate` deploys it if not
            given: state 8, or the solver's last if it has fewer.
        as_json: Print JSON.
    """
    checkpoint = resolve(ckpt)
    shape = checkpoint.required("image_shape")
    settings = None if defence == "none" else defence_budget(checkpoint.eps)
    predictor = deploy(checkpoint.predictor, defence=settings, state=None if state is None else str(state))
    records: list[Record] = []
    photos: list[tuple[Record, Photo]] = []
    with saying(Console(stderr=True)) as say:
        for done, path in enumerate(image):
            say(f"reading: {done:,} of {len(image):,}")
            record: Record = {"file": str(path)}
            records.append(record)
            try:
                photos.append((record, read_photo(path, shape)))
            except (DataError, DataNotFoundError) as error:
                record["error"] = str(error)
            except OSError as error:
                record["error"] = f"{path} cannot be read: {error.strerror or error}"
        for start in range(0, len(photos), BATCH):
            say(f"predicting: {start:,} of {len(photos):,}")
            batch = photos[start : start + BATCH]
            answers = _predict(checkpoint, predictor, torch.stack([photo.pixels for _, photo in batch]))
            for (record, photo), answer in zip(batch, answers, strict=True):
                record |= {**answer, "defence": defence, "notes": list(photo.notes)}
    if as_json:
        print(json.dumps(records, indent=2, allow_nan=False))  # noqa: T201
    elif photos:
        _show(records)
    failed = [record["error"] for record in records if "error" in record]
    for message in failed:
        print(f"robustdeq: error: {message}", file=sys.stderr)  # noqa: T201
    return 1 if failed else 0


@torch.no_grad()
def _predict(checkpoint: Checkpoint, predictor: Any, pixels: Tensor) -> list[Record]:
    subject = Subject(predictor)
    x = pixels.to(subject.device, subject.dtype) / 255
    with blaming(checkpoint.name, f"the prediction failed on images {tuple(x.shape)}"):
        trajectory = predictor.trajectory(x) if isinstance(predictor, DynamicPredictor) else None
        logits = predictor(x)
    checkpoint.check_logits(logits, len(x))
    answers = []
    for i, row in enumerate(logits):
        answer = {**_answer(row, checkpoint.classes), "state": subject.early_state or "final"}
        if trajectory is None:
            answer |= {"entropy": _numbers(entropy(row)[None])}
        else:
            status = Status(int(trajectory.status[i]))
            answer |= {
                "entropy": _numbers(trajectory.entropy[:, i]),
                "residual": _numbers(trajectory.residual[:, i]),
                "converged": status is Status.CONVERGED,
                "status": status.name.lower(),
                "steps": int(trajectory.steps[i]),
            }
        answers.append(answer)
    return answers


def _answer(logits: Tensor, classes: tuple[str, ...] | None) -> Record:
    if not bool(logits.isfinite().all()):
        return {"class": None, "label": None, "confidence": None}
    label = int(logits.argmax())
    name = str(label) if classes is None else classes[label]
    confidence = float(logits.softmax(0)[label])
    return {"class": name, "label": label, "confidence": confidence}


def _numbers(values: Tensor) -> list[float | None]:
    """JSON has no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _show(records: list[Record]) -> None:
    # names of files and classes are not markup
    console = Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False)
    answered = [r for r in records if "error" not in r]
    traced = any("converged" in r for r in answered)
    table = Table("file", "class", box=box.SIMPLE)
    table.add_column("confidence", justify="right")
    for column in ("entropy in nats", "converged") if traced else ():
        table.add_column(column)
    noted = any(r["notes"] for r in answered)
    if noted:
        table.add_column("done to the file")
    for r in answered:
        certain = "-" if r["confidence"] is None else f"{r['confidence']:.1%}"
        cells = [r["file"], r["class"] or "none: not finite", certain]
        if traced:
            cells += [_trace(r["entropy"]), _ending(r)]
        table.add_row(*cells, *(["; ".join(r["notes"])] if noted else []))
    console.print(table)


def _trace(values: list[float | None]) -> str:
    """A bar per state, the highest being the largest entropy of this trace, and the first and last number."""
    top = max((v for v in values if v is not None), default=0.0) or 1.0
    bars = "".join("?" if v is None else BLOCKS[round(v / top * (len(BLOCKS) - 1))] for v in values)
    first, last = ("?" if v is None else f"{v:.2f}" for v in (values[0], values[-1]))
    return f"{bars} {first} to {last}"


def _ending(record: Record) -> str:
    if record["converged"]:
        return f"yes, after {record['steps']} steps"
    if record["status"] != "step_limit":
        return f"no: {record['status'].replace('_', '-')}"
    return f"no: residual {record['residual'][-1]:.0e}"
