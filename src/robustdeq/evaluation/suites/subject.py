"""What evaluation needs to know of a predictor: its states, the deployed one, the model under its defence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from robustdeq.models import DEQ
from robustdeq.models.modes import attacking
from robustdeq.models.predictor import FINAL, DynamicPredictor
from robustdeq.models.pretrained import weights_digest
from robustdeq.models.settings import encode
from robustdeq.threat import number

Callee = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Subject:
    """A predictor under evaluation: anything that maps pixels in [0, 1] to logits."""

    predictor: Callee
    base: Callee | None = None
    """What it is compared with; by default, the undefended model of a defended one."""

    @property
    def dynamic(self) -> DynamicPredictor | None:
        """The predictor if it has states that can be looked into, else None."""
        return self.predictor if isinstance(self.predictor, DynamicPredictor) else None

    @property
    def solves_alone(self) -> bool:
        """Whether its solvers treat every image independently; says nothing of a user's encoder or head."""
        return self.dynamic is not None and self.dynamic.batch_independent

    @property
    def states(self) -> int:
        """Number of solver states N; 0 without dynamics."""
        return 0 if self.dynamic is None else self.dynamic.num_states

    @property
    def state_names(self) -> list[str]:
        """Names of all states; without dynamics "final" alone."""
        return [FINAL] if self.dynamic is None else self.dynamic.state_names

    @property
    def early_state(self) -> int | None:
        """The state that predictions are read from; None for the final one."""
        return None if self.dynamic is None else self.dynamic.early_state

    @property
    def deployed_state(self) -> str:
        """Name of the state that predictions are read from."""
        return FINAL if self.dynamic is None else self.dynamic.deployed_state

    @property
    def defended(self) -> bool:
        """Whether it is a defence along the dynamics of a model, which attacks can look into."""
        return self.dynamic is not None and self.dynamic.defended

    @property
    def undefended(self) -> Callee | None:
        """The static base: the given one, or the predictor without its defence; None if there is neither."""
        if self.base is not None:
            return self.base
        return self.dynamic.undefended() if self.dynamic is not None and self.defended else None

    @cached_property
    def device(self) -> torch.device | None:
        """Device of its weights; None without weights."""
        return next((tensor.device for tensor in self._weights()), None)

    @cached_property
    def dtype(self) -> torch.dtype:
        """Floating-point type of its weights; float32 without weights."""
        return next((t.dtype for t in self._weights() if t.is_floating_point()), torch.float32)

    def _weights(self) -> Iterable[Tensor]:
        return self.predictor.state_dict().values() if isinstance(self.predictor, nn.Module) else ()

    def pixels(self, x: Tensor) -> Tensor:
        """Images as the predictor takes them: 8-bit ones in [0, 1], on its device."""
        return (x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x).to(self.device or x.device)

    @property
    def model(self) -> Any:
        """The model inside all defences."""
        return self.predictor if self.dynamic is None else self.dynamic.base

    @property
    def metadata(self) -> dict[str, Any]:
        """What the checkpoint says about the model: data set, eps, training."""
        return dict(getattr(self.model, "metadata", None) or {})

    @property
    def eps(self) -> float | None:
        """The eps that the model was trained for; None if its checkpoint does not say."""
        eps = self.metadata.get("eps")
        return None if eps is None else number(eps, "eps of the checkpoint")

    def prepared(self) -> AbstractContextManager[Any]:
        """Context of eval mode without parameter gradients; restores both afterwards."""
        return attacking(self.predictor) if isinstance(self.predictor, nn.Module) else nullcontext()

    def describe(self) -> dict[str, Any]:
        """Settings and weights that its predictions depend on, as JSON; a plain function gives its name only."""
        description: dict[str, Any] = {"config": describe(self.predictor)}
        if isinstance(self.predictor, nn.Module):
            description["weights_sha256"] = weights_digest(self.predictor)
        return description


def describe(predictor: Any) -> Any:
    """Kind and settings of a module and its children; the name of a plain function."""
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
    """Whether it is a number or text, or several of them, such as the stride of a convolution."""
    if isinstance(value, tuple | list):
        return all(_is_setting(part) for part in value)
    return isinstance(value, int | float | str | bool | None)


def plain(value: Any) -> Any:
    """The value as JSON; a user's own dataclass, such as a solver, by its repr, anything else by its type."""
    try:
        encoded = encode(value)
        json.dumps(encoded)
    except TypeError:
        return repr(value) if is_dataclass(value) else type(value).__qualname__
    return encoded
