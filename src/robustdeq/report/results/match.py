"""Which results belong together, and which may be compared with the paper's numbers."""

from __future__ import annotations

from typing import Any

from robustdeq.evaluation.store.manifest import AS_PRINTED
from robustdeq.report import paper
from robustdeq.report.results.complete import oblivious_grid
from robustdeq.report.results.describe import Result
from robustdeq.threat import Linf

RAW = "Eq. 8 along the raw gradient, as the paper's text prints it (its numbers were made along the sign, by its code)"
GRID = 144
"""The number of the paper's intermediate-state attacks."""


def paper_row(r: Result) -> paper.Key:
    """The training and method by which the paper's tables list a model."""
    return r.training, r.method


def weights(r: Result) -> str | None:
    """Checksum of the undefended model's weights; None where the store does not hold it."""
    name = r.predictor if r.entropy is None else r.undefended
    return None if name is None else r.manifest.predictors[name].weights_sha256


def t_f_and_r(r: Result) -> tuple[int, int] | None:
    """T_f and R of the entropy reduction; None without one."""
    return None if r.entropy is None else (r.entropy.every, r.entropy.steps)


def predictor_key(r: Result) -> tuple[Any, ...]:
    """Equal for all results of one predictor: weights, solver, defence and deployed state.

    Without a checksum of the weights, a store is only equal to itself.
    """
    solved = [(config.get("solver"), config.get("gradient")) for config in r.record.layers.values()]
    return weights(r) or r.label, r.method, r.record.deployed_state, r.entropy, solved[-1:]


def images_key(r: Result) -> tuple[Any, ...]:
    """Equal for results that may be compared image by image: same images, same threat."""
    return r.manifest.data.sha256, r.manifest.threat


def same_evaluation(a: Result, b: Result) -> bool:
    """Whether both are the same predictor on the same images under the same threat."""
    return (predictor_key(a), images_key(a)) == (predictor_key(b), images_key(b))


def training_key(r: Result) -> tuple[Any, ...]:
    """Equal for trainings that differ at most in their states: model, objective, seed and Jacobian penalty."""
    metadata = r.manifest.model.metadata
    return r.manifest.model.kind, r.training, metadata.get("seed"), metadata.get("jacobian")


def differences_from_the_paper(r: Result) -> list[str]:
    """The reasons why the numbers cannot be compared with the paper's; empty if they can."""
    data, threat, model = r.manifest.data, r.manifest.threat, r.manifest.model.kind
    reasons = []
    if model != ("mdeq-large" if r.method in paper.METHODS else "resnet18"):
        reasons.append(f"model {model}")
    if data.name != "cifar10":
        reasons.append(f"data {data.name}")
    elif data.images != 10_000:
        reasons.append(f"{data.images} images")
    if not isinstance(threat, Linf) or abs(threat.eps - 8 / 255) > 1e-9:
        reasons.append(f"{type(threat).__name__} eps {r.eps}")
    if r.entropy is not None and r.entropy.changed_switches:
        printed = r.entropy.words.removeprefix(AS_PRINTED)
        said = f"{RAW}{printed}" if printed != r.entropy.words else f"variant {r.entropy.words}"
        reasons.append(said)
    attacks = len(oblivious_grid(r))
    if attacks and attacks != GRID:
        reasons.append(f"{attacks} of the {GRID} attacks")
    return reasons
