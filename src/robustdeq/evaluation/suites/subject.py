"""What evaluation knows of a predictor: its states, which one is deployed, what is under its defence."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from robustdeq.defences import EarlyState
from robustdeq.models import DEQ
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.models.pretrained import weights_digest
from robustdeq.models.registry import preset_of
from robustdeq.models.settings import encode

FINAL = "final"
Callee = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A predictor under evaluation; anything that maps pixels to logits."""

    predictor: Callee

    @property
    def dynamic(self) -> DynamicPredictor | None:
        """The predictor, if its passes can be looked into."""
        return self.predictor if isinstance(self.predictor, DynamicPredictor) else None

    @property
    def solves_alone(self) -> bool:
        """Whether its solvers step each image as if it were alone; no word on a user's encoder, head or defence."""
        if self.dynamic is None:
            return False
        base = self.dynamic.base
        backward = getattr(base.gradient, "solver", base.solver)
        return not (base.solver.batch_coupled or backward.batch_coupled)

    @property
    def states(self) -> int:
        """N, or 0 without dynamics."""
        return 0 if self.dynamic is None else self.dynamic.base.solver.max_steps

    @property
    def state_names(self) -> list[str]:
        """The columns of the paper's evaluation: z^[1] to z^[N] and the unrolled final state."""
        return [*map(str, range(1, self.states + 1)), FINAL]

    @property
    def early_state(self) -> int | None:
        """The state that an EarlyState anywhere in the predictor reads, if there is one."""
        part: Any = self.dynamic
        while part is not None and part is not part.base:
            if isinstance(part, EarlyState):
                return part.state
            part = part.predictor
        return None

    @property
    def deployed_state(self) -> str:
        """The state that predictions are read from."""
        return FINAL if self.early_state is None else str(self.early_state)

    @property
    def undefended(self) -> Callee | None:
        """The static base, read at the same state; None if there is no defence above it."""
        if self.dynamic is None or not self.dynamic.defended:
            return None
        base = self.dynamic.base
        return base if self.early_state is None else EarlyState(base, state=self.early_state)

    @cached_property
    def device(self) -> torch.device | None:
        """Where its weights are."""
        tensors = self.predictor.state_dict().values() if isinstance(self.predictor, nn.Module) else ()
        return next((tensor.device for tensor in tensors), None)

    @cached_property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        tensors = self.predictor.state_dict().values() if isinstance(self.predictor, nn.Module) else ()
        return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the checkpoint says of itself: data set, eps, training."""
        model = self.predictor if self.dynamic is None else self.dynamic.base
        return dict(getattr(model, "metadata", None) or {})

    @property
    def model_kind(self) -> str | None:
        """The registered name of the model, such as mdeq-tiny; None where it has none."""
        architecture = getattr(self.predictor if self.dynamic is None else self.dynamic.base, "architecture", None)
        return None if architecture is None else preset_of(architecture.name, architecture.options)

    def prepared(self) -> AbstractContextManager[Any]:
        """Eval mode and no gradients for parameters, put back afterwards."""
        return attacking(self.predictor) if isinstance(self.predictor, nn.Module) else nullcontext()

    def describe(self) -> dict[str, Any]:
        """Everything that its predictions depend on, as JSON; of a plain function only its name."""
        description: dict[str, Any] = {"config": describe(self.predictor)}
        if isinstance(self.predictor, nn.Module):
            description["weights_sha256"] = weights_digest(self.predictor)
        return description


def describe(predictor: Any) -> Any:
    """Kind and settings of a module, and of what it wraps; the name of a function."""
    if not isinstance(predictor, nn.Module):
        kind = predictor if hasattr(predictor, "__qualname__") else type(predictor)
        return f"{kind.__module__}.{kind.__qualname__}"
    content: dict[str, Any] = {"kind": type(predictor).__name__}
    if isinstance(predictor, DEQ):
        content |= {name: plain(value) for name, value in predictor.settings().items()}
    architecture = getattr(predictor, "architecture", None)
    if architecture is not None:
        content["architecture"] = architecture.name
        content["options"] = {name: plain(value) for name, value in architecture.options.items()}
        return content
    for name, value in vars(predictor).items():
        if not name.startswith("_") and name != "training" and name not in content:
            if is_dataclass(value) and not isinstance(value, type):
                content[name] = plain(asdict(value))
            elif _is_setting(value):
                content[name] = value
    return content | {name: describe(child) for name, child in predictor.named_children()}


def _is_setting(value: Any) -> bool:
    """A number, a text, or several of them, such as the stride of a convolution."""
    if isinstance(value, tuple | list):
        return all(_is_setting(part) for part in value)
    return isinstance(value, int | float | str | bool | None)


def plain(value: Any) -> Any:
    """As JSON; what has no JSON, such as a user's own solver, as the text that it prints as."""
    try:
        encoded = encode(value)
        json.dumps(encoded)
    except TypeError:
        return repr(value) if is_dataclass(value) else type(value).__qualname__
    return encoded
