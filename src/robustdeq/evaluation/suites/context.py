"""What the attacks of a suite depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustdeq.evaluation.store.manifest import DataRecord
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import Threat


@dataclass(frozen=True)
class Setting:
    """What the attacks of a suite depend on."""

    subject: Subject
    threat: Threat
    aware: bool = False
    """On a defended predictor: gradients of the defended pass too."""
    store: Store | None = None
    """Where results go; AutoAttack looks there for the grid's strongest oracle."""
    union: bool = False
    """Broken images leave, so that no attack of a grid can be called the strongest."""
    sources: Sequence[Path] = ()
    """Stores whose kept images are scored on the predictor."""
    classes: int | None = None
    """How many the predictor tells apart, if known: losses that need more are left out."""
    data: DataRecord | None = None
    """The images; those of the sources must be the same. None where no source is given."""

    @property
    def ball(self) -> dict[str, Any]:
        """The threat as fields of a specification."""
        return {"norm": type(self.threat).__name__, "eps": self.threat.eps}

    @property
    def pgd(self) -> dict[str, Any]:
        """PGD-10 with steps of a quarter of the radius: 2/255 at 8/255."""
        return {"steps": 10, "step_size": self.threat.eps / 4}

    @property
    def has_dlr(self) -> bool:
        """Whether the DLR loss is defined; of two classes cross-entropy knows all there is."""
        return self.classes is None or self.classes >= 3

    @property
    def defended(self) -> bool:
        """Whether there is something that an attacker may know or not know of."""
        return self.subject.undefended is not None
