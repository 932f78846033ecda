"""What happens to a batch: it is attacked, scored on every predictor at every state, and becomes rows of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from robustdeq.evaluation.run.out_of_memory import halving
from robustdeq.evaluation.run.plan import Plan
from robustdeq.evaluation.run.stacking import attack_together
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.schema import PARTIAL_SCHEMA
from robustdeq.evaluation.store.sources import stored_images
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.models.predictor import FINAL, entropy
from robustdeq.threat import cross_entropy

NO_PREDICTION = -1
"""The prediction where a logit is NaN; equal to no label, so the image counts as misclassified."""


class Batches:
    """Computes the rows of clean and attacked images; batches that do not fit into memory are halved."""

    def __init__(self, plan: Plan, x: Tensor, y: Tensor, folder: Path, watch: Callable[[Tensor], None]) -> None:
        self.plan, self.x, self.y, self.folder, self.watch = plan, x, y, folder, watch
        self.scoring_seconds = 0.0

    def images(self, index: Tensor) -> Tensor:
        """Clean images at these positions, as the predictor takes them."""
        return self.plan.subject.pixels(self.x[index.to(self.x.device)])

    def clean(self, index: Tensor) -> pl.DataFrame:
        """Rows of the clean images at these positions."""
        return pl.concat(halving(self._clean, index))

    def attacked(self, specs: Sequence[AttackSpec], pairs: Tensor) -> tuple[pl.DataFrame, Tensor]:
        """Rows of attacked images, and the adversarial images in the order of `pairs`.

        Args:
            specs: One attack, or several that share batches.
            pairs: (B, 2): for each row of the batch, its attack's number in `specs` and its image's position.
        """
        parts = halving(lambda some: self._attacked(specs, some), pairs)
        rows = pl.concat([rows for rows, _ in parts])
        columns = [pl.col(name).cast(dtype) for name, dtype in PARTIAL_SCHEMA.items()]
        return rows.select(columns), torch.cat([images for _, images in parts])

    def _clean(self, index: Tensor) -> pl.DataFrame:
        x, y = self._batch(index)
        scored = self.plan.scored.items()
        return pl.concat(
            [rows(name, s, score(s, x, self.plan.wanted.all_states), index, y, diagnostics=True) for name, s in scored]
        ).with_columns(correct=pl.col("prediction") == pl.col("label"))

    def _attacked(self, specs: Sequence[AttackSpec], pairs: Tensor) -> tuple[pl.DataFrame, Tensor]:
        number, index = pairs[:, 0], pairs[:, 1]
        x, y = self._batch(index)
        images, queries, logits = self._attack(specs, number, x, y, index)
        began, diagnostics = time.monotonic(), specs[0].diagnostics
        frames = []
        for name, subject in self.plan.scored.items():
            if name == "deployed" and logits is not None and not self.plan.wanted.all_states:
                scores = Scores([subject.deployed_state], logits[None])
            else:
                scores = score(subject, images, self.plan.wanted.all_states)
            clean = score(subject, x, all_states=True) if diagnostics and subject.dynamic else None
            also = {"queries": queries, "number": number}
            frames.append(rows(name, subject, scores, index, y, clean=clean, diagnostics=diagnostics, also=also))
        self.scoring_seconds += time.monotonic() - began
        return pl.concat(frames), images.cpu()

    def _attack(
        self, specs: Sequence[AttackSpec], number: Tensor, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Adversarial images, queries, and the deployed logits if the attack was on the deployed predictor."""
        if specs[0].attack == "stored":
            return stored_images(specs[0], self.folder, x, index), torch.zeros_like(y), None
        if self.plan.wanted.all_states:  # an oblivious attack makes the same images on the undefended model
            specs = [replace(spec, on="base") if spec.every_image and spec.blind else spec for spec in specs]
        result = attack_together(specs, number, self.plan.subject, self.plan.wanted.seed, x, y, index, self.watch)
        return result.images, result.queries, result.logits if specs[0].on == "deployed" else None

    def _batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        x = self.images(index)
        return x, self.y[index.to(self.y.device)].to(x.device)


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of a predictor at each scored state, with the states themselves if it has dynamics."""

    names: list[str]
    logits: Tensor
    """(S, B, C), in the order of `names`."""
    states: Tensor | None = None
    """(N, B, ...)."""
    residual: Tensor | None = None
    """(N, B)."""


@torch.no_grad()
def score(subject: Subject, x: Tensor, all_states: bool) -> Scores:
    """One pass on x: the logits at every state, or at the deployed one only."""
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


def predictions(logits: Tensor) -> Tensor:
    """The predicted class of each image; `NO_PREDICTION` where a logit is NaN."""
    return torch.where(logits.isnan().any(-1), NO_PREDICTION, logits.argmax(-1))


def measure(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Prediction, margin, entropy (nats) and cross-entropy loss of each image; logits (B, C), labels (B,)."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    own = logits.gather(-1, labels[:, None])[:, 0]
    others = logits.scatter(-1, labels[:, None], -torch.inf)
    return {
        "prediction": predictions(logits),
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
    """The store's rows, one per state and image, with `also` as further columns of one value per image.

    `diagnostics` stores the residuals of the states, and how far they have moved from those of the clean images.
    """
    names, states = scores.names, len(scores.names)
    per_image = {"image": index.to(labels.device), "label": labels, **(also or {})}
    columns = {key: values.repeat(states) for key, values in per_image.items()}
    columns |= measure(scores.logits.flatten(0, 1), columns["label"])
    residual = deviation = None
    if diagnostics and scores.states is not None:
        residual = scores.residual
        if clean is not None and clean.states is not None:
            pairs = zip(scores.states.flatten(2), clean.states.flatten(2), strict=True)
            deviation = torch.stack([(z - origin).norm(dim=1) / origin.norm(dim=1) for z, origin in pairs])
    length, state = states * len(index), np.repeat(names, len(index))
    return pl.DataFrame(
        {
            **{key: values.cpu().numpy() for key, values in columns.items()},
            "predictor": np.repeat(name, length),
            "state": state,
            "deployed": state == subject.deployed_state,
            "residual": _null_padded(residual, length),
            "deviation": _null_padded(deviation, length),
        },
        schema_overrides=dict.fromkeys(("margin", "entropy", "loss"), pl.Float32),
    )


def _null_padded(values: Tensor | None, length: int) -> pl.Series:
    """Values (N, B) of the solver's states as a column; null for the unrolled final state."""
    known = pl.Series([] if values is None else values.flatten().cpu().numpy(), dtype=pl.Float32)
    return known.extend_constant(None, length - len(known))
