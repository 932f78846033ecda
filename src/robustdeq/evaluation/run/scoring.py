"""What a predictor makes of images, at every state, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.suites.subject import FINAL, Subject
from robustdeq.models.predictor import entropy
from robustdeq.threat import cross_entropy

MISSING = -1
"""The prediction where a logit is NaN: right for no label, as attacks judge."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits at each scored state, and where there are dynamics what they went through."""

    names: list[str]
    logits: Tensor
    """(S, B, C), in the order of the names."""
    states: Tensor | None = None
    """(N, B, ...)."""
    residual: Tensor | None = None
    """(N, B)."""


@torch.no_grad()
def score(subject: Subject, x: Tensor, *, all_states: bool) -> Scores:
    """One pass on x: every state, or only the deployed one, which the predictor reads out itself."""
    dynamic = subject.dynamic
    with subject.prepared():
        if dynamic is None or not all_states:
            return Scores([subject.deployed_state], subject.predictor(x)[None])
        walked = dynamic.walk(x)
        states = walked.solution.trajectory
        assert states is not None
        names, deployed = subject.state_names, subject.deployed_state
        logits = [dynamic.base.head(walked.f.unpack(z)) for z in states]
        logits.append((dynamic if deployed == FINAL else dynamic.base).read_out(walked))
        if deployed != FINAL:
            logits[names.index(deployed)] = dynamic.read_out(walked)
    return Scores(names, torch.stack(logits), states, walked.solution.residuals)


def measure(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Per image: prediction, margin, entropy and loss; logits with a NaN predict nothing."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    known = ~logits.isnan().any(-1)
    own = logits.gather(-1, labels[:, None])[:, 0]
    others = logits.scatter(-1, labels[:, None], -torch.inf)
    return {
        "prediction": torch.where(known, logits.argmax(-1), MISSING),
        "margin": own - others.amax(-1),
        "entropy": entropy(logits),
        "loss": cross_entropy(logits, labels),
    }


def rows(
    name: str,
    subject: Subject,
    scores: Scores,
    index: Tensor,
    labels: Tensor,
    *,
    clean: Scores | None = None,
    diagnostics: bool = False,
    also: Mapping[str, Tensor] | None = None,
) -> pl.DataFrame:
    """Long-format rows, state by state: what is common to clean and attacked images.

    Args:
        name: Of the predictor in the store.
        subject: The predictor.
        scores: Of these images.
        index: Their positions in the test order.
        labels: Theirs.
        clean: Scores of the clean images, to measure the deviation of the states from theirs.
        diagnostics: Keep residuals and deviations.
        also: Further columns, a value for each image.
    """
    common = {key: value.cpu().numpy() for key, value in {"image": index, "label": labels, **(also or {})}.items()}
    frames = []
    for k, state in enumerate(scores.names):
        measured = {key: value.cpu().numpy() for key, value in measure(scores.logits[k], labels).items()}
        frame = pl.DataFrame({**common, **measured})
        residual = deviation = None
        if diagnostics and scores.states is not None and scores.residual is not None and state != FINAL:
            residual = pl.Series(scores.residual[k].cpu().numpy())
            if clean is not None and clean.states is not None:
                deviation = pl.Series(relative_change(scores.states[k], clean.states[k]).cpu().numpy())
        frames.append(
            frame.with_columns(
                predictor=pl.lit(name),
                state=pl.lit(state),
                deployed=pl.lit(state == subject.deployed_state),
                residual=pl.lit(residual, dtype=pl.Float32) if residual is None else residual.cast(pl.Float32),
                deviation=pl.lit(deviation, dtype=pl.Float32) if deviation is None else deviation.cast(pl.Float32),
            ).with_columns(pl.col("margin", "entropy", "loss").cast(pl.Float32))
        )
    return pl.concat(frames)


def relative_change(z: Tensor, origin: Tensor) -> Tensor:
    """||z - origin|| / ||origin|| per image."""
    change, size = ((v.reshape(len(v), -1)).norm(dim=1) for v in (z - origin, origin))
    return change / size
