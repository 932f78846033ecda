"""The flags of the defence, which `predict`, `evaluate`, `benchmark` and `explore` share."""

from __future__ import annotations

from typing import Literal, TypedDict


class DefenceFlags(TypedDict, total=False):
    """What the command line says of the defence.

    Args:
        defence: entropy (purifies the input between solver steps, within the checkpoint's own budget eps), none, or
            package.module:Class of your own, whose options are --defence.NAME VALUE. By default none; explore shows
            entropy.
        defence_variant: The paper's algorithm (default) or that of the released code.
        defence_direction: The image moves along the sign of the gradient (default), or along the gradient, Eq. 8 as
            printed.
        defence_resolve: Whether the state is solved again with the moved image; by default as the variant has it.
        defence_history: What becomes of the solver's factors at an intervention; by default as the variant has it.
        defence_handed_on: State that a segment hands to the next; by default as the variant has it.
        defence_final_input: Image that the final state is unrolled with; by default as the variant has it.
        defence_every: T_f, the solver steps between interventions; 2 by default.
        defence_steps: R, the inner iterations of an intervention; 10 by default.
    """

    defence: str
    defence_variant: Literal["paper", "released"]
    defence_direction: Literal["gradient", "sign"]
    defence_resolve: bool
    defence_history: Literal["kept", "restarted"]
    defence_handed_on: Literal["iterate", "lowest"]
    defence_final_input: Literal["purified", "received"]
    defence_every: int
    defence_steps: int
    defence_own: dict[str, str]
    """Options of a defence of one's own: no flag by this name, but all that are given."""
