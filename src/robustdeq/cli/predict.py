"""`robustdeq predict`: classify image files."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from robustdeq.cli.arguments.defence_flags import DefenceFlags

if TYPE_CHECKING:
    import torch

    from robustdeq.cli.arguments.checkpoint import Checkpoint
    from robustdeq.data.photos import Photo

BATCH = 64
BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.:-=+*#"

Record = dict[str, Any]


def run(
    ckpt: str,
    image: list[Path],
    *,
    state: int | Literal["final"] | None = None,
    as_json: bool = False,
    plot: Path | None = None,
    trust: bool = False,
    imports: str | None = None,
    **flags: Unpack[DefenceFlags],
) -> int:
    """Classify image files: class, confidence, entropy along the states, whether the solver converged.

    Of each file the first frame is read, turned as its EXIF orientation says, with transparency over white. An image
    whose proportions differ from the model's is cut to its largest centred part; one of another size is resized with
    antialiasing. What was done to a file stands beside its answer. A file that cannot be read does not stop the others;
    the exit code is then 1.

    Args:
        ckpt: A checkpoint folder, a shipped checkpoint's name, hf:user/name, or package.module:function that returns a
            predictor.
        image: Image files.
        state: Predict from head(z^[state]), or from the final unrolled state; by default as `evaluate` deploys the
            model: from state 8, or the solver's last if it has fewer.
        as_json: Print JSON instead of a table.
        plot: Draw the images and what is predicted at every state into this SVG file, as `robustdeq explore` does.
        trust: Run code outside robustdeq that the checkpoint names; not needed in the folder that it was trained in.
        imports: Module of your own to import first, such as one that registers models (several: separated by commas); a
            checkpoint may name it.
        **flags: Of the defence.
    """
    import torch
    from rich.console import Console

    from robustdeq.cli.arguments.checkpoint import resolve
    from robustdeq.cli.arguments.deploy import deployed
    from robustdeq.cli.arguments.folders import make_room
    from robustdeq.cli.progress import saying
    from robustdeq.data import DataError, DataNotFoundError
    from robustdeq.data.photos import read_photo
    from robustdeq.host.references import import_modules
    from robustdeq.host.terminal import complain

    if plot is not None:
        if plot.suffix != ".svg":
            raise ValueError(f"--plot writes SVG: give it a name such as {plot.with_suffix('.svg')}")
        make_room(plot, "--plot")
    checkpoint = resolve(ckpt, trust or import_modules(imports))
    shape = checkpoint.required("image_shape")
    named = None if state is None else str(state)
    predictor = deployed(checkpoint.predictor, flags, checkpoint.eps, named)
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
        for start in range(0, len(photos), BATCH):
            say(f"predicting: {start:,} of {len(photos):,}")
            batch = photos[start : start + BATCH]
            answers = _predict(checkpoint, predictor, torch.stack([photo.pixels for _, photo in batch]))
            for (record, photo), answer in zip(batch, answers, strict=True):
                record |= {**answer, "defence": flags.get("defence", "none"), "notes": list(photo.notes)}
        if plot is not None and photos:
            say(f"drawing into {plot}")
            _draw(checkpoint, predictor, photos, plot)
    if as_json:
        print(json.dumps(records, indent=2, allow_nan=False))  # noqa: T201
    elif photos:
        _show([record for record in records if "error" not in record])
    failed = [record["error"] for record in records if "error" in record]
    for message in failed:
        complain(message)
    return 1 if failed else 0


def _predict(checkpoint: Checkpoint, predictor: Any, pixels: torch.Tensor) -> list[Record]:
    """The answers to a batch of images (B, C, H, W), uint8."""
    import torch

    from robustdeq.evaluation.suites.subject import Subject
    from robustdeq.host.references import blaming
    from robustdeq.models import CheckpointError
    from robustdeq.models.predictor import DynamicPredictor, entropy
    from robustdeq.solve import Status

    subject = Subject(predictor)
    x = pixels.to(subject.device, subject.dtype) / 255
    with (
        torch.no_grad(),
        blaming(checkpoint.name, f"the prediction failed on images {tuple(x.shape)}", kind=CheckpointError),
    ):
        trajectory = predictor.trajectory(x) if isinstance(predictor, DynamicPredictor) else None
        logits = predictor(x) if trajectory is None else trajectory.deployed
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


def _draw(checkpoint: Any, predictor: Any, photos: list[tuple[Record, Photo]], file: Path) -> None:
    from robustdeq.app.poster import poster
    from robustdeq.app.views import predicted
    from robustdeq.evaluation.suites.subject import Subject
    from robustdeq.host.files import write_atomically

    subject, views = Subject(predictor), []
    for record, photo in photos:
        answer = (
            "no class: not finite" if record["class"] is None else f"{record['class']} ({record['confidence']:.0%})"
        )
        view = predicted(predictor, subject.pixels(photo.pixels[None]), checkpoint.classes)
        views.append((view, [f"{Path(record['file']).name}: {answer}"]))
    write_atomically(file, poster(*views).encode())


def _answer(logits: torch.Tensor, classes: tuple[str, ...] | None) -> Record:
    """Class and confidence of one image's logits (C,); no class if they are not finite."""
    if not bool(logits.isfinite().all()):
        return {"class": None, "label": None, "confidence": None}
    label = int(logits.argmax())
    name = str(label) if classes is None else classes[label]
    return {"class": name, "label": label, "confidence": float(logits.softmax(0)[label])}


def _numbers(values: torch.Tensor) -> list[float | None]:
    """Values for JSON, which has no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _show(answered: list[Record]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from robustdeq.host.terminal import carries, printable

    blocks = BLOCKS if carries(sys.stdout, BLOCKS) else ASCII_BLOCKS
    traced = any("converged" in r for r in answered)
    noted = any(r["notes"] for r in answered)
    table = Table("file", "class", box=box.SIMPLE)
    table.add_column("confidence", justify="right")
    for column in ["entropy in nats", "converged"] * traced + ["done to the file"] * noted:
        table.add_column(column)
    for r in answered:
        confidence = "-" if r["confidence"] is None else f"{r['confidence']:.1%}"
        trace = [_trace(r["entropy"], blocks), _ending(r)] if traced else []
        name, answer = printable(r["file"]), printable(r["class"] or "none: not finite")
        table.add_row(name, answer, confidence, *trace, *["; ".join(r["notes"])] * noted)
    # names of files and classes are not markup
    Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False).print(table)


def _trace(values: list[float | None], blocks: str) -> str:
    """A bar per state, relative to the largest entropy of this trace, and the first and last value."""
    top = max((v for v in values if v is not None), default=0.0) or 1.0
    bars = "".join("?" if v is None else blocks[round(v / top * (len(blocks) - 1))] for v in values)
    first, last = ("?" if v is None else f"{v:.2f}" for v in (values[0], values[-1]))
    return f"{bars} {first} to {last}"


def _ending(record: Record) -> str:
    if record["converged"]:
        return f"yes, after {record['steps']} steps"
    if record["status"] != "step_limit":
        return f"no: {record['status'].replace('_', '-')}"
    return f"no: residual {record['residual'][-1]:.0e}"
