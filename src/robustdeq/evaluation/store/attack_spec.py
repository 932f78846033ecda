"""An attack as data: a name, everything that decides what it does, and a hash over that."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from robustdeq.attacks import AutoAttack
from robustdeq.host.references import is_reference
from robustdeq.threat import L2, Linf, Threat

NORMS: dict[str, type[Threat]] = {"Linf": Linf, "L2": L2}
ATTACKS = ("pgd", "apgd", "square", "fab", "autoattack", "stored")
ORACLES = ("direct", "ready", "unrolled", "estimate", "carried", "exact", "watched", "beside", "strongest", "none")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")

SANITY = "sanity"
"""Group of attacks that check whether attacks work, at radii of their own; they count for no accuracy."""

ROUNDING = 1e-12
"""Tolerance within which two radii count as equal."""

LARGEST, DEEPEST = 10**7, 10**4
"""The largest number in the options of an attack, such as its queries, and of an oracle, such as its states."""

Target = Literal["deployed", "base"]


@dataclass(frozen=True, kw_only=True)
class AttackSpec:
    """Everything that decides what an attack does to an image, in terms of JSON."""

    name: str
    """Name of the attack, and of its folder in the store."""
    attack: str
    """pgd, apgd, square, fab, autoattack, package.module:Class, or stored (images of another store)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the attack, apart from threat and seed."""
    norm: str = "Linf"
    eps: float
    oracle: str
    """direct, ready, unrolled, estimate, carried, exact, watched, beside (the gradient of the static base), none,
    strongest (the strongest of the grid), or package.module:Class."""
    oracle_options: Mapping[str, Any] = field(default_factory=dict)
    on: Target = "deployed"
    """The predictor under attack: the deployed one, or its static base."""
    every_image: bool = True
    """Whether to attack every image to the last step, or to leave misclassified and broken images alone."""
    survivors: Target | None = None
    """If given, it runs only on the images that this predictor still gets right after the attacks before it. Attacks
    without gradients of the predictor do not count for "deployed": what they alone break is attacked again."""
    limit: int | None = None
    """Number of images to attack, the first of the data; None for all."""
    diagnostics: bool = False
    """Whether to store deviation and residual of every state."""
    group: str = "own"
    """ready, grid, grid-aware, table4, autoattack, audit, transfer, sanity or own. Not part of the hash."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Files that define an attack and an oracle of one's own, each with a digest."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise ValueError(f"an attack's name is letters, digits, and any of . _ + - (got {self.name!r})")
        for what, value, known in (
            ("attack", self.attack, ATTACKS),
            ("oracle", self.oracle, ORACLES),
            ("norm", self.norm, tuple(NORMS)),
            ("on", self.on, ("deployed", "base")),
        ):
            own = what in ("attack", "oracle")
            if value not in known and not (own and is_reference(value)):
                also = " or package.module:Class" if own else ""
                raise ValueError(f"attack {self.name}: {what} must be one of {', '.join(known)}{also}, got {value!r}")
        if self.survivors not in (None, "deployed", "base"):
            raise ValueError(f"attack {self.name}: survivors must be deployed or base, got {self.survivors!r}")
        self._check_types()
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"attack {self.name}: limit is a number of images, at least 1 (got {self.limit})")
        if re.match(r"aa(?![a-z])", self.name, re.IGNORECASE) and not self.is_standard_autoattack:
            raise ValueError(
                f"attack {self.name}: only AutoAttack with its standard budgets may be called AA; choose another name"
            )

    def _check_types(self) -> None:
        """Refuse values that no attack can have, before anything is built from them."""
        for what, right, expected in (
            ("options", isinstance(self.options, Mapping), "a mapping"),
            ("oracle_options", isinstance(self.oracle_options, Mapping), "a mapping"),
            ("every_image", isinstance(self.every_image, bool), "true or false"),
            ("diagnostics", isinstance(self.diagnostics, bool), "true or false"),
            ("limit", self.limit is None or type(self.limit) is int, "a number of images"),
            ("eps", isinstance(self.eps, int | float) and math.isfinite(self.eps), "a number"),
        ):
            if not right:
                raise ValueError(f"attack {self.name}: {what}: expected {expected}, got {getattr(self, what)!r}")
        for options, most in ((self.options, LARGEST), (self.oracle_options, DEEPEST)):
            for what, value in options.items():
                if isinstance(value, int | float) and not abs(value) <= most:
                    raise ValueError(f"attack {self.name}: {what}: expected a number up to {most:,}, got {value!r}")

    @property
    def in_grid(self) -> bool:
        """Whether it is one of the grid's intermediate-state attacks (docs/method.md, section 5)."""
        return self.group.startswith("grid")

    @property
    def blind(self) -> bool:
        """Whether it sees the undefended model only: PGD with the values and gradients of an oblivious surrogate."""
        oblivious = self.oracle == "unrolled" and not self.oracle_options.get("aware", False)
        own_values = self.oracle_options.get("values", "surrogate") == "surrogate"
        return self.attack == "pgd" and self.options.get("restarts", 1) == 1 and oblivious and own_values

    @property
    def is_standard_autoattack(self) -> bool:
        """Whether it is AutoAttack with the budgets it was published with."""
        return self.attack == "autoattack" and {**AutoAttack.STANDARD, **self.options} == AutoAttack.STANDARD

    @property
    def threat(self) -> Threat:
        """The ball that adversarial images stay in."""
        return NORMS[self.norm](self.eps)

    def counts(self, threat: Threat) -> bool:
        """Whether images that it breaks count as broken: its ball lies in the threat, and it is no sanity check."""
        inside = self.norm == type(threat).__name__ and self.eps <= threat.eps + ROUNDING
        return inside and self.group != SANITY

    @property
    def black(self) -> bool:
        """Whether it sees no gradient of the deployed predictor: Square, images of other stores or of the base."""
        return self.attack in ("square", "stored") or self.on == "base"

    def runs_on(self, images: int) -> int:
        """Number of images that it is run on, of so many."""
        return images if self.limit is None else min(images, self.limit)

    @property
    def hash(self) -> str:
        """First 12 hex digits of the SHA-256 over `identity`."""
        return hashlib.sha256(canonical(self.identity()).encode()).hexdigest()[:12]

    def identity(self) -> dict[str, Any]:
        """The fields that decide what happens to an image."""
        content = {**asdict(self), "diagnostics": False}  # no influence, but part of the hashes of existing stores
        unset = {name for name in ("code", "survivors") if not getattr(self, name)}  # younger than existing stores
        return {key: value for key, value in content.items() if key not in {"name", "group", *unset}}

    def seed(self, seed: int) -> int:
        """Seed of this attack in an evaluation with the given seed."""
        return int.from_bytes(hashlib.sha256(f"{seed}/{self.name}".encode()).digest()[:4], "little") >> 1

    def cost(self, states: int = 8) -> float:
        """Approximate evaluations of f per image; a backward pass counts as two.

        Orders attacks under union and forecasts their time; no result depends on it.
        """
        solve = float(self.oracle_options.get("state") or states)
        carried = self.oracle == "carried"
        unrolled = self.oracle_options.get("iterations", 1) - 1 if carried else self.oracle_options.get("steps", 9)
        values = 0 if self.oracle_options.get("values", "surrogate") == "surrogate" else states - solve
        gradient = solve + values + 3 * (unrolled + 1)
        restarts = self.options.get("restarts", 1)
        match self.attack:
            case "pgd":
                return restarts * self.options.get("steps", 10) * gradient
            case "apgd":
                return restarts * self.options.get("n_iter", 100) * gradient
            case "square":
                return restarts * self.options.get("n_queries", 5000) * (states + 1.0)
            case "fab":
                return restarts * self.options.get("n_iter", 100) * 9 * gradient
            case "autoattack":
                return 1900 * gradient + 5000 * (states + 1.0)
            case own if is_reference(own):
                return restarts * float(self.options.get("steps", 10)) * gradient
            case _:
                return states + 1.0


def canonical(content: Any) -> str:
    """JSON in a canonical form, for hashing."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
