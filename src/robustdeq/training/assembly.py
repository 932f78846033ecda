"""What is built from a configuration and its data: the model, its average, and the metadata of checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from robustdeq.data import Dataset
from robustdeq.host.references import blaming
from robustdeq.models import DEQ, create_model
from robustdeq.models.modes import evaluating
from robustdeq.models.pretrained import Pretrained
from robustdeq.models.registry import declared_options
from robustdeq.threat import number
from robustdeq.training.config import TrainConfig
from robustdeq.training.objectives import Adversarial, Objective


def build_model(config: TrainConfig, data: Dataset) -> Any:
    """The model with weights drawn by the seed.

    Of in_channels, num_classes and image_size its builder is given those that it names, as the data have them, unless
    they are configured.
    """
    channels, *size = data.image_shape
    offered = {"in_channels": channels, "num_classes": data.num_classes, "image_size": size}
    names = declared_options(config.model.name)
    options = {**{k: v for k, v in offered.items() if k in names}, **config.model.options}
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(config.seed)
        model = create_model(config.model.name, **options)
    if not isinstance(model, nn.Module) or not isinstance(model, Pretrained):
        raise TypeError(
            f"{config.model.name} built a {type(model).__name__}; expected a robustdeq.DEQ, which can be saved"
        )
    objective = config.objective
    needed = objective.states == "random" or objective.inner == "carried" or config.jacobian.weight > 0
    if needed and not isinstance(model, DEQ):
        raise ValueError(
            f"{config.model.name} is not a DEQ: it has no states to draw or to carry, and no Jacobian to penalise; "
            "set objective.states to final, objective.inner to cold and jacobian.weight to 0"
        )
    return model.double() if config.precision == "64-true" else model


@torch.no_grad()
def try_out(name: str, model: nn.Module, data: Dataset, dtype: torch.dtype) -> None:
    """Refuse a model that fails on the data's images, does not tell their classes apart, or could not be saved."""
    x = data.train.subset(slice(0, 2)).pixels01(dtype=dtype)
    with evaluating(model), blaming(name, f"the model fails on images {tuple(x.shape)}"), torch.random.fork_rng():
        logits = model(x)
    if not isinstance(logits, torch.Tensor) or logits.shape != (len(x), data.num_classes):
        found = f"a tensor {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(
            f"{name}: for {len(x)} images of {data.num_classes} classes the model gives {found}; expected logits "
            f"{(len(x), data.num_classes)}: a builder that names num_classes or in_channels is given those of the data"
        )
    model.check_saveable()  # type: ignore[operator]


def new_average(config: TrainConfig, data: Dataset, model: Any, device: torch.device) -> Any:
    """A copy of the model that holds the average of its weights, or None if weights are not averaged."""
    if config.schedule.ema is None:
        return None
    average = build_model(config, data).to(device)
    average.load_state_dict(model.state_dict())
    return average.requires_grad_(False).eval()


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Move `average` towards `model` after `step` steps; the decay is smaller in the first steps."""
    decay = min(decay, (step + 1) / (step + 10))
    for mean, value in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value.to(mean.dtype), 1 - decay)
        else:
            mean.copy_(value)


def given(objective: Objective | None, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """What replaces parts of the configuration, as JSON: a run resumes only with the same."""
    parts = {"objective": objective, "optimizer": optimizer}
    words = {name: " ".join(repr(part).split()) for name, part in parts.items() if part is not None}
    return {"given": words} if words else {}


def training_metadata(config: TrainConfig, data: Dataset, objective: Objective | None) -> dict[str, Any]:
    """Metadata of a checkpoint that does not depend on the step; `objective` is one given instead of the config's."""
    own: dict[str, Any] = {}
    if objective is not None:
        own = {
            "objective": type(objective).__name__.lower(),
            "states": "random" if objective.states.varies else "final",
        }
        if isinstance(objective, Adversarial):
            own |= {"eps": objective.threat.eps, "inner": " ".join(repr(objective.inner).split())}
    return {
        "dataset": config.data.name,
        "eps": number(config.objective.eps),
        "objective": config.objective.kind,
        "states": config.objective.states,
        "inner": {name: value for name, value in asdict(config.objective).items() if name.startswith("inner")}
        if config.objective.inner == "carried"
        else "cold",
        "jacobian": config.jacobian.weight,
        "classes": list(data.train.classes),
        "image_shape": list(data.image_shape),
        "held_out": len(data.validation),
        "data_options": config.data.options,
        "seed": config.seed,
        **own,
    }
