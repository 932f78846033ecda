"""The choices in which the paper's algorithm and its released code differ (table in docs/method.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

Variant = Literal["paper", "released"]
Direction = Literal["gradient", "sign"]
History = Literal["kept", "restarted"]
HandedOn = Literal["iterate", "lowest"]
FinalInput = Literal["purified", "received"]


@dataclass(frozen=True, kw_only=True)
class Switches:
    """One choice per row of the table."""

    direction: Direction
    """Whether x^ moves along the gradient of the entropy or along its sign."""
    resolve: bool
    """Whether the step to z^[t] is taken again with the new x^; otherwise the new x^ acts on later steps only."""
    history: History
    """Whether the solver keeps its factors, or rebuilds them in each segment of `every` steps."""
    handed_on: HandedOn
    """The state that a segment hands on: its last iterate, or with restarted history its lowest-residual one."""
    final_input: FinalInput
    """The image whose f the final unrolled readout applies."""

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
    # Eq. 8 prints the gradient; the paper's numbers were made along its sign (docs/decisions/020).
    "paper": Switches(direction="sign", resolve=True, history="kept", handed_on="iterate", final_input="purified"),
    "released": Switches(
        direction="sign", resolve=False, history="restarted", handed_on="lowest", final_input="received"
    ),
}


def switches_of(variant: str, **changes: Any) -> Switches:
    """The switches of a variant, with every change that is not None."""
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    return replace(VARIANTS[variant], **{name: value for name, value in changes.items() if value is not None})
