"""The folder of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robustdeq.training.logs import read_log


@dataclass(frozen=True)
class Run:
    """A training run and its log."""

    label: str
    folder: Path

    def validation(self) -> list[tuple[float, float, float]]:
        """Epoch (a step is a fraction of one), clean accuracy and PGD accuracy at each validation."""
        rows = read_log(self.folder)
        steps_per_epoch = max(sum(row["epoch"] == "0" for row in rows), 1)
        return [
            (int(row["step"]) / steps_per_epoch, float(row["validation_clean"]), float(row["validation_pgd"]))
            for row in rows
            if row["validation_pgd"]
        ]
