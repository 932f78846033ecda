"""Training runs: what each trains, and its validation by epoch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from robustdeq.models.registry import preset_of
from robustdeq.report.results.describe import OBJECTIVES
from robustdeq.training.logs import read_log


@dataclass(frozen=True)
class TrainingSettings:
    """What a training run trains."""

    model: str
    objective: str
    """pgdat, trades or standard."""
    states: str
    """final, or random for Sec. 3.3."""
    jacobian: float
    """Weight of the Jacobian penalty."""

    @property
    def training(self) -> str:
        """The objective in the words of the paper's tables."""
        return OBJECTIVES.get(self.objective, "unknown")


@dataclass(frozen=True)
class Run:
    """A training run and its log."""

    label: str
    folder: Path

    @cached_property
    def settings(self) -> TrainingSettings | None:
        """What it trains, as run.json says; None if that cannot be read."""
        try:
            config = json.loads((self.folder / "run.json").read_bytes())["config"]
            objective, weight = config["objective"], float(config["jacobian"]["weight"])
            model = preset_of(str(config["model"]["name"]), config["model"].get("options", {}))
            words = model, str(objective["kind"]), str(objective["states"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return TrainingSettings(*words, weight)

    @property
    def jacobian(self) -> float:
        """Weight of the Jacobian penalty; NaN if run.json does not say."""
        return float("nan") if self.settings is None else self.settings.jacobian

    def validation(self) -> list[tuple[float, float, float]]:
        """Epoch (a step is a fraction of one), clean accuracy and PGD accuracy at each validation."""
        rows = read_log(self.folder)
        steps_per_epoch = max(sum(row["epoch"] == "0" for row in rows), 1)
        return [
            (int(row["step"]) / steps_per_epoch, float(row["validation_clean"]), float(row["validation_pgd"]))
            for row in rows
            if row["validation_pgd"]
        ]


def jacobian_groups(runs: Sequence[Run]) -> dict[tuple[str, str, str], list[Run]]:
    """The validated runs of one model, objective and state policy that have more than one weight, lightest first."""
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.settings is not None and run.validation():
            groups[run.settings.model, run.settings.training, run.settings.states].append(run)
    several = {key: found for key, found in groups.items() if len({r.jacobian for r in found}) > 1}
    return {key: sorted(found, key=lambda r: r.jacobian) for key, found in several.items()}
