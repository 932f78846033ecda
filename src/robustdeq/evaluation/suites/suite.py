"""What a suite is, and what its attacks may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.manifest import DataRecord
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.subject import Callee, Subject
from robustdeq.threat import Threat

UNROLLINGS = range(1, 10)
"""The paper's unrolling steps K_a in the grid."""
DAMPINGS = (0.5, 1.0)
"""The paper's dampings lambda in the grid."""


@dataclass(frozen=True)
class Suite:
    """Attacks in the order they run in, and what is stored and judged beside them."""

    name: str
    specs: list[AttackSpec]
    notes: list[str] = field(default_factory=list)
    """What the reader of the results must know."""
    keep_images: bool = False
    """Whether adversarial images are stored, unless the caller decides."""
    also: Mapping[str, Callee] = field(default_factory=dict)
    """Further predictors that every adversarial image is scored on."""
    audited: bool = False
    """Whether the audit judges the results when all attacks are done."""
    rounds: int = 0
    """Number of rounds, at most, in which the strongest attacks are repeated on the survivors of all."""


@dataclass(frozen=True)
class Context:
    """The evaluation that a suite is built for."""

    subject: Subject
    threat: Threat
    aware: bool = False
    """Attack a defended predictor through its defence too."""
    store: Store | None = None
    """The store that receives the results; AutoAttack looks there for the grid's strongest oracle."""
    union: bool = False
    """Broken images leave, so no attack of the grid can be called the strongest."""
    files: tuple[Path, ...] = ()
    """The suite files that include the one that is read."""
    sources: Sequence[Path] = ()
    """Stores whose kept images are scored on the predictor."""
    classes: int | None = None
    """Number of classes, if known; losses that need more are left out."""
    data: DataRecord | None = None
    """The images under evaluation; None where no source is given."""
    unrollings: Sequence[int] = UNROLLINGS
    """K_a of the grid."""
    dampings: Sequence[float] = DAMPINGS
    """lambda of the grid."""

    @property
    def ball(self) -> dict[str, Any]:
        """The threat as fields of an `AttackSpec`."""
        return {"norm": type(self.threat).__name__, "eps": self.threat.eps}

    def spec(self, name: str, attack: str, oracle: str, **fields: Any) -> AttackSpec:
        """An attack in the threat's ball."""
        return AttackSpec(**{"name": name, "attack": attack, "oracle": oracle, **self.ball, **fields})

    @property
    def pgd(self) -> dict[str, Any]:
        """Options of PGD-10 with steps of a quarter of the radius: 2/255 at 8/255."""
        return {"steps": 10, "step_size": self.threat.eps / 4}

    @property
    def losses(self) -> tuple[str, ...]:
        """Losses of APGD; DLR needs three classes."""
        return ("ce", "dlr") if self.classes is None or self.classes >= 3 else ("ce",)

    @property
    def dynamic(self) -> bool:
        """Whether the predictor has states that attacks can look into."""
        return self.subject.dynamic is not None

    @property
    def defended(self) -> bool:
        """Whether the predictor is a defence along the dynamics of a model, which attacks can look into."""
        return self.subject.defended

    @property
    def base(self) -> Subject | None:
        """The static base that the predictor is compared with, if there is one."""
        base = self.subject.undefended
        return None if base is None else Subject(base)


SuiteBuilder = Callable[[Context], Suite]
SuiteChoice = str | Path | Suite | SuiteBuilder
"""A shipped suite's name, a YAML file, a suite, or a function that builds one."""
