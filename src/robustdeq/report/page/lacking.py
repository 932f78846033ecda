"""What is missing, grouped by the models of the report, each group with one command for all of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from robustdeq.report.missing import Missing
from robustdeq.report.page.cards import Card


@dataclass(frozen=True)
class Lacking:
    """What is missing for a model."""

    name: str
    items: list[Missing]

    @property
    def command(self) -> str | None:
        """One command for everything; None if some of it is a call from Python."""
        words = [m.command.replace("; ", " && ") for m in self.items]
        return " && \\\n".join(dict.fromkeys(words)) if all(w.startswith("robustdeq ") for w in words) else None


def lacking(missing: Sequence[Missing], cards: Sequence[Card]) -> tuple[list[Lacking], list[Missing]]:
    """A group per model that lacks something, and what the paper has beyond these models."""
    groups: dict[str, list[Missing]] = {card.name: [] for card in cards}
    beyond: list[Missing] = []
    for m in missing:
        owner = next((card.name for card in cards if _concerns(m, card)), None)
        (beyond if owner is None else groups[owner]).append(m)
    return [Lacking(name, items) for name, items in groups.items() if items], beyond


def _concerns(m: Missing, card: Card) -> bool:
    """Whether it names a store of the model, or evaluates the same checkpoint."""
    labels = {r.label for r in card.results}
    if any(m.what.startswith((f"{label}: ", f"transfer to {label} ")) for label in labels):
        return True
    words = shlex.split(m.command)
    names = {r.manifest.model.name for r in card.results}
    return words[:2] == ["robustdeq", "evaluate"] and len(words) > 2 and words[2] in names
