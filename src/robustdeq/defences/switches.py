"""In what the paper's algorithm and the released code differ (the table of METHOD.md section 4)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

Variant = Literal["paper", "released"]
Direction = Literal["gradient", "sign"]


@dataclass(frozen=True, kw_only=True)
class Switches:
    """One choice per row of the table."""

    direction: Direction
    """x^ moves along the gradient of the entropy, or along its sign."""
    resolve: bool
    """z^[t] is solved again with the new x^; else the new x^ acts on later steps only."""
    history: Literal["kept", "restarted"]
    """The solver's factors are kept, or rebuilt in each segment of `every` steps."""
    handed_on: Literal["iterate", "lowest"]
    """The state a segment hands on: its last iterate, or its lowest-residual one (restarted history only)."""
    final_input: Literal["purified", "received"]
    """Whose f the final unrolled readout applies."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Switches).items():
            choices = get_args(kind) or (True, False)
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        if self.handed_on == "lowest" and self.history == "kept":
            raise ValueError(
                "handed_on='lowest' needs history='restarted': kept factors belong to the last iterate; "
                "set handed_on='iterate' too"
            )


VARIANTS = {
    "paper": Switches(direction="gradient", resolve=True, history="kept", handed_on="iterate", final_input="purified"),
    "released": Switches(
        direction="sign", resolve=False, history="restarted", handed_on="lowest", final_input="received"
    ),
}


def switches_of(variant: str, changes: dict[str, Any]) -> Switches:
    """Those of a variant, some of them changed."""
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    known = [f.name for f in fields(Switches)]
    for name in changes:
        if name not in known:
            raise TypeError(f"EntropyReduction has no option {name!r}; its switches are {', '.join(known)}")
    return replace(VARIANTS[variant], **changes)
