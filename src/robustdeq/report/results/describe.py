"""What a result is, in the words of its store's manifest."""

from __future__ import annotations

from dataclasses import dataclass

from robustdeq.evaluation.store.manifest import EntropyRecord, Manifest, PredictorRecord
from robustdeq.evaluation.store.store import Store

OBJECTIVES = {"trades": "TRADES", "pgdat": "PGD-AT", "standard": "standard"}


@dataclass(frozen=True)
class Result:
    """One predictor of a store."""

    label: str
    """The store's name in the report."""
    store: Store
    predictor: str = "deployed"
    """Another predictor that every attacked image was scored on is "base", the undefended model inside a defence, or a
    defence around the undefended model that was attacked, such as "entropy-sign"."""

    @property
    def manifest(self) -> Manifest:
        """The manifest of the store."""
        return self.store.manifest

    @property
    def record(self) -> PredictorRecord:
        """The predictor's entry in the manifest."""
        return self.manifest.predictors[self.predictor]

    @property
    def entropy(self) -> EntropyRecord | None:
        """The entropy reduction (Sec. 3.2) around the model; None without one."""
        return self.record.entropy

    @property
    def oblivious(self) -> bool:
        """Whether this is a defence that only saw images made against the undefended model."""
        return self.predictor not in ("deployed", "base")

    @property
    def undefended(self) -> str | None:
        """The predictor of the same store that is this one without its defence; None without a defence."""
        name = "deployed" if self.oblivious else "base"
        defended = self.entropy is not None or self.record.own_defences
        return name if defended and name in self.manifest.predictors else None

    @property
    def states(self) -> int:
        """The number of states of the dynamics, without the final one."""
        return len(self.record.states) - 1

    @property
    def name(self) -> str:
        """The name of the result in tables and figures."""
        if self.predictor == "deployed":
            return self.label
        return f"{self.label} ({self.predictor}{', oblivious' if self.oblivious else ''})"

    @property
    def eps(self) -> str:
        """The budget of the threat, as a fraction of 255 where it is one."""
        return budget(self.manifest.threat.eps)

    @property
    def training(self) -> str:
        """How the model was trained: TRADES, PGD-AT, standard, or unknown."""
        return OBJECTIVES.get(str(self.manifest.model.metadata.get("objective")), "unknown")

    @property
    def random(self) -> bool:
        """Whether the model was trained with random intermediate states (Sec. 3.3)."""
        return self.manifest.model.metadata.get("states") == "random"

    @property
    def method(self) -> str:
        """The method in the words of the paper's tables."""
        parts = [name for name, on in (("3.2", self.entropy is not None), ("3.3", self.random)) if on]
        method = f"+ Sec. {' & '.join(parts)}" if parts else "baseline"
        return ", ".join([method if self.manifest.dynamic else "no dynamics", *self.record.own_defences])

    @property
    def described(self) -> str:
        """The method, with the variant of the defence unless it is the default, and whether it was attacked itself."""
        words = [self.method]
        if self.entropy is not None and (self.oblivious or not self.entropy.is_default):
            words.append(f"variant {self.entropy.words}")
        return ", ".join([*words, "attacked obliviously"] if self.oblivious else words)


def budget(eps: float) -> str:
    """8/255 for 0.03137."""
    steps = eps * 255
    return f"{round(steps)}/255" if abs(steps - round(steps)) < 1e-6 else f"{eps:g}"
