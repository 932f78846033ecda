"""An oracle that remembers what it was asked."""

from dataclasses import dataclass, field

import torch

from robustdeq.attacks import Oracle


@dataclass(frozen=True, eq=False)
class Recorded(Oracle):
    """A model, and as surrogate the same logits times a factor."""

    model: torch.nn.Module
    factor: float = 1.0
    asked: list = field(default_factory=list)
    shown: list = field(default_factory=list)

    @property
    def target(self):
        return self.model

    def estimate(self, x):
        return self.factor * self.model(x)

    def _record(self, kind, x):
        self.asked.append(kind)
        self.shown.append(x.detach().clone())

    def surrogate(self, x):
        self._record("surrogate", x)
        return super().surrogate(x)

    def deployed(self, x):
        self._record("deployed", x)
        return super().deployed(x)

    def both(self, x):
        self._record("both", x)
        return super().both(x)
