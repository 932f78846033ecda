"""What is shown of a case: every state of the clean, the attacked and the defended pass, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robustdeq.app.pictures import magnified, png
from robustdeq.app.plane import Plane, plane_of
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import FINAL, DynamicPredictor, Pass, entropy

Numbers = list[float | None]
"""A value for each state; None where it is not finite."""
ABSENT = -1


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One pass on one image. Predictions have a column for every state and, where it is known, for the final one."""

    name: str
    """clean, attacked or defended."""
    words: str
    """What it is called."""
    picture: str
    """The received image, as a data link."""
    prediction: list[int | None]
    """Class at each column; None if the logits are not finite, `ABSENT` where the predictor has no answer."""
    confidence: Numbers
    """Probability of that class."""
    truth: Numbers
    """Probability of the label."""
    entropy: Numbers
    residual: Numbers
    distance: Numbers = field(default_factory=list)
    """From the clean state, relative to its norm."""

    def right(self, column: int, label: int | None) -> bool:
        """Whether the prediction at a column is the label."""
        return self.prediction[column] is not None and self.prediction[column] == label


@dataclass(frozen=True, kw_only=True)
class InputPath:
    """How entropy reduction moves the image during a pass."""

    since: list[int]
    """The state after which each intervention takes place."""
    points: list[tuple[float, float]]
    """Clean image, received image, then the image after each intervention, in a plane through them."""
    unit: str
    """What the length 1 stands for."""
    inner_entropy: list[Numbers]
    """Entropy before each update of an intervention and after the last."""
    pictures: list[str]
    """The image after each intervention, minus the received one, magnified."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything that is drawn of one image."""

    columns: list[str]
    """Names of the states that predictions are shown of: 1..N, and final."""
    deployed: int
    """The column that predictions are read from."""
    label: int | None
    label_is: str
    """Where the label comes from."""
    classes: tuple[str, ...]
    traces: list[Trace]
    perturbation: str | None = None
    """Attacked minus clean, magnified, as a data link."""
    moved: float = 0.0
    """Largest change of a pixel by the attack."""
    plane: Plane | None = None
    path: InputPath | None = None
    defence: str = "entropy reduction"
    """What it is called."""
    notes: list[str] = field(default_factory=list)

    @property
    def states(self) -> int:
        """N; 0 for a predictor without dynamics."""
        return len(self.traces[0].entropy) if self.columns != [FINAL] else 0

    def class_name(self, label: int | None) -> str:
        """The name of a class."""
        return "not finite" if label is None else "no answer" if label == ABSENT else self.classes[label]


def trace_of(
    name: str, words: str, predictor: Any, x: Tensor, label: int | None, columns: list[str], deployed: int
) -> tuple[Trace, Pass | None]:
    """The trace of one image (1, C, H, W) through a predictor, and its pass if it has dynamics.

    `columns` are those of `View`. A predictor without dynamics around a model that has some fills the deployed one.
    """
    dynamic, walked = predictor if isinstance(predictor, DynamicPredictor) else None, None
    with Subject(predictor).prepared(), torch.no_grad():
        if dynamic is None:
            logits = predictor(x)
        else:
            walked = dynamic.walk(x, measure=True)
            final = dynamic.deployed_state == FINAL
            read = [dynamic.base.head(walked.f.unpack(z)) for z in states_of(walked)]
            read.append((dynamic if final else dynamic.base).read_out(walked))
            read[columns.index(dynamic.deployed_state)] = dynamic.read_out(walked)
            logits = torch.cat(read)
    prediction = [int(row.argmax()) if bool(row.isfinite().all()) else None for row in logits]
    confidence = numbers(logits.softmax(-1).amax(-1))
    before, after = (deployed, len(columns) - deployed - 1) if walked is None else (0, 0)
    return Trace(
        name=name,
        words=words,
        picture=png(x[0]),
        prediction=[ABSENT] * before + prediction + [ABSENT] * after,
        confidence=[None] * before + confidence + [None] * after,
        truth=[] if label is None or walked is None else numbers(logits.softmax(-1)[:, label]),
        entropy=[] if walked is None else numbers(entropy(logits[:-1])),
        residual=[] if walked is None else numbers(walked.solution.residuals[:, 0]),
    ), walked


def states_of(walked: Pass) -> Tensor:
    """The states z^[1..N] of a pass, (N, B, ...)."""
    assert walked.solution.trajectory is not None
    return walked.solution.trajectory


def predicted(predictor: Any, x: Tensor, classes: tuple[str, ...] | None) -> View:
    """The view of a prediction: what is red differs from the answer, as the label is not known."""
    with torch.no_grad():
        logits = predictor(x)
    label = int(logits.argmax()) if bool(logits.isfinite().all()) else None
    passes = [("clean", "image", predictor)]
    if isinstance(predictor, DynamicPredictor) and predictor.defended:
        passes = [("clean", "without defence", predictor.undefended()), ("defended", "with defence", predictor)]
    columns, deployed = columns_of(predictor)
    traced = [trace_of(name, words, of, x, label, columns, deployed) for name, words, of in passes]
    return View(
        columns=columns,
        deployed=deployed,
        label=label,
        label_is="as predicted",
        classes=classes or tuple(map(str, range(logits.shape[1]))),
        traces=[trace for trace, _ in traced],
        plane=plane_through(predictor, [walked for _, walked in traced]),
    )


def columns_of(predictor: Any) -> tuple[list[str], int]:
    """Names of the columns, and the one that the predictor reads."""
    if not isinstance(predictor, DynamicPredictor):
        return [FINAL], 0
    return predictor.state_names, predictor.state_names.index(predictor.deployed_state)


def distances(walked: Pass, clean: Pass) -> Numbers:
    """Relative distance of the states of a pass from those of the clean one."""
    z, origin = states_of(walked), states_of(clean)
    apart, size = (t.flatten(2).norm(dim=-1)[:, 0] for t in (z - origin, origin))
    return numbers(apart / size)


def path_of(clean: Tensor, walked: Pass) -> InputPath | None:
    """The path of the image under a defence, seen along the attack's direction and across it."""
    moved, received = walked.purification, walked.x
    if moved is None or not moved.inputs:
        return None
    origin = clean.double().flatten()
    steps = torch.stack([received, *moved.inputs]).double().flatten(1) - origin
    length = float(steps[0].norm())
    first = steps[0] / length if length else _main_direction(steps)
    along = steps @ first
    across = steps - along[:, None] * first
    second = _main_direction(across)
    scale = length or 1.0
    height = across @ second
    points = [(0.0, 0.0), *zip((along / scale).tolist(), (height / scale).tolist(), strict=True)]
    if not all(math.isfinite(value) for point in points for value in point):
        return None
    return InputPath(
        since=list(moved.since),
        points=points,
        unit="the attack's length" if length else "pixel values, L2",
        inner_entropy=[numbers(values[:, 0]) for values in moved.inner_entropy],
        pictures=[magnified(x[0] - received[0]) for x in moved.inputs],
    )


def plane_through(predictor: Any, passes: Sequence[Pass | None]) -> Plane | None:
    """The plane of the first two principal components of all states, with the head's class regions."""
    found = [walked for walked in passes if walked is not None]
    states = [states_of(walked)[:, 0] for walked in found]
    if not states or not all(bool(z.isfinite().all()) for z in states):
        return None
    model, f = predictor.base, found[0].f
    return plane_of(states, lambda z: model.head(f.unpack(z)))


def numbers(values: Tensor) -> Numbers:
    """A list for drawing and for JSON, which have no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _main_direction(rows: Tensor) -> Tensor:
    direction = torch.linalg.svd(rows, full_matrices=False).Vh[0]
    return direction if float(direction[direction.abs().argmax()]) > 0 else -direction
