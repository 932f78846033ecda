"""Training logs: metrics as CSV, which can be compared between runs, and TensorBoard, which also has timings."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

from robustdeq.host.files import read_regular, saying_full, write_atomically

COLUMNS = (
    "step",
    "epoch",
    "phase",
    "lr",
    "loss",
    "ce",
    "kl",
    "jacobian",
    "train_accuracy",
    "validation_clean",
    "validation_pgd",
    "validation_inner",
)


class Log:
    """One row of metrics per step; a resumed run drops the rows after its checkpoint and writes them again."""

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, needed by training only

        self.path = folder / "metrics.csv"
        rows = [r for r in read_log(folder) if int(r["step"]) <= resume_step]
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path, text.getvalue().encode())
        self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_step + 1)

    def write(self, row: dict[str, Any], *, rate: float) -> None:
        """Append one row; the rate in images per second and parts of a user's own loss go to TensorBoard only."""
        line = io.StringIO(newline="")
        csv.DictWriter(line, COLUMNS, extrasaction="ignore").writerow(row)
        content = line.getvalue()
        with saying_full(self.path, size=len(content)), open(self.path, "a", newline="") as file:
            file.write(content)
        for name, value in row.items():
            if isinstance(value, float):
                self.board.add_scalar(name, value, row["step"])
        self.board.add_scalar("samples_per_second", rate, row["step"])

    def close(self) -> None:
        """Flush and close TensorBoard's file."""
        self.board.close()


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv; a last line that a kill cut short is dropped."""
    path = folder / "metrics.csv"
    if not path.exists():
        return []
    try:
        text = read_regular(path).decode()
        rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
        for row in rows:
            numbers = [row[name] or 0 for name in ("step", "epoch", "validation_clean", "validation_pgd")]
            if None in row or int(row["step"]) < 1 or not all(math.isfinite(float(n)) for n in numbers):
                raise ValueError(f"a row of step {row['step']}, epoch {row['epoch']}")
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}): copy it again, or move it away, which loses the "
            "metrics so far and nothing else"
        ) from None
    return rows
