"""A suite: a list of attacks with what is stored and judged beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.subject import Callee


@dataclass(frozen=True)
class Suite:
    """Attacks in the order they run in, and what the reader of their results must know."""

    name: str
    specs: list[AttackSpec]
    notes: list[str] = field(default_factory=list)
    keep_images: bool = False
    """Transfer is scored on the images."""
    also: Mapping[str, Callee] = field(default_factory=dict)
    """Further predictors that the images are scored on."""
    audited: bool = False
    """When all attacks are done, the audit judges them."""
