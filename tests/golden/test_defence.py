"""Input entropy reduction in the released variant."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import robustdeq as rd
from robustdeq.defences import flows

from .cases import CASES, Digest
from .comparison import compares
from .solves import of_batch

SETTINGS = ((2, 10), (1, 5), (4, 1))
"""(T_f, R) of the defended passes."""
SEGMENTS_ALONE = ((1, 0), (2, 0), (4, 0))


def named(images, settings):
    return {f"{images}_Tf{every}_R{steps}_": (images, every, steps) for every, steps in settings}


MOVED = named("clean", SETTINGS) | named("adv", SETTINGS)
UNMOVED = named("clean", SEGMENTS_ALONE) | named("adv", SEGMENTS_ALONE)
STRESSED = {
    f"{variant}_def_Tf{every}_R{steps}_": (variant, every, steps)
    for variant in ("nonmono", "early")
    for every, steps in ((2, 10), (4, 1))
}
LONG = {("A", prefix) for prefix in [*MOVED, *UNMOVED, *STRESSED] if not prefix.startswith("clean_Tf4")}
"""Case B runs them all in a few seconds."""


@dataclass(frozen=True, eq=False)
class Defended:
    """Everything the files hold of a defended pass."""

    states: Digest
    final9: Digest
    logits: Tensor
    entropy: Tensor
    trajectory: rd.Trajectory
    segments: list[rd.Solution]
    u_norm: Tensor
    """Of the last factor that segments 2, 3, ... were handed, its scale included."""

    def of_segments(self, name) -> Tensor:
        """A field of the segments' solutions, one row per segment."""
        return torch.stack([of_batch(getattr(segment, name)) for segment in self.segments])


@cache
@torch.no_grad()
def defended(case_name, variant, images, every, steps) -> Defended:
    """Through the doors, the trajectory with a look into its segments."""
    case = CASES[case_name]
    model, x = case.model(variant), case.x_adv if images == "adv" else case.x
    defence = rd.EntropyReduction(model, every=every, steps=steps, variant="released")
    ends: list[rd.Iteration] = []  # one iteration per segment

    def recorded(*args, **options):
        ends.append(rd.Iteration(*args, **options))
        return ends[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "Iteration", recorded)
        trajectory = defence.trajectory(x)
    handed = [end.memory.first for end in ends[1:]]

    logits = trajectory.deployed
    f, _ = model.begin(x)  # the ninth column is unrolled with the image as it was received
    y = f(ends[-1].value)
    for _ in range(9):
        y = (y + f(y)) / 2
    torch.testing.assert_close(model.head(f.unpack(y)), logits, rtol=0, atol=1e-10)
    final = torch.distributions.Categorical(logits=logits).entropy()
    return Defended(
        states=Digest.of_state(trajectory.states, f),
        final9=Digest.of_state(y, f),
        logits=torch.cat([trajectory.logits, logits[None]]),
        entropy=torch.cat([trajectory.entropy, final[None]]),
        trajectory=trajectory,
        segments=[end.solution() for end in ends],
        u_norm=torch.stack([(b.u[:, -1] * b.scale[:, -1:]).norm(dim=1) for b in handed]),
    )


def of_states(run):
    return {
        "states": run.states,
        "final9": run.final9,
        "logits": run.logits,
        "entropy": run.entropy,
        "seg_res_abs": run.of_segments("residual_norms"),
        "seg_res_rel": run.of_segments("residuals"),
        "seg_lowest": run.of_segments("lowest_step"),
        "u_norm": run.u_norm,
    }


def of_inputs(run):
    return {
        "xhat_final": Digest.of_image(run.trajectory.inputs[-1]),
        "H_before_update": run.trajectory.inner_entropy[:, :-1].mean(-1),
    }


@compares("defence", "settings_Tf_R")
def test_settings_are_those_recorded(case):
    return {"settings_Tf_R": np.array(SETTINGS + SEGMENTS_ALONE)}


@compares("defence", "*", prefixes=tuple(UNMOVED), long=LONG)
def test_segments_alone_are_the_released_ones(case, prefix):
    return of_states(defended(case.name, None, *UNMOVED[prefix]))


@compares(
    "defence",
    *("states_*", "final9_*", "logits", "entropy", "seg_*", "u_norm", "xhat_final_*", "H_before_update"),
    prefixes=tuple(MOVED),
    long=LONG,
)
def test_defended_pass_is_the_released_one(case, prefix):
    run = defended(case.name, None, *MOVED[prefix])
    return of_states(run) | of_inputs(run)


@compares("defence", "xhat_offset255", atol=2e-5, prefixes=tuple(MOVED), long=LONG)
def test_purified_images_are_the_released_ones_pixel_by_pixel(case, prefix):
    images, every, steps = MOVED[prefix]
    x = case.x_adv if images == "adv" else case.x
    return {"xhat_offset255": (defended(case.name, None, images, every, steps).trajectory.inputs - x) * 255}


@compares("stress", "*", tol=1e-7, prefixes=tuple(STRESSED), long=LONG)
def test_defended_pass_of_multiplied_weights_is_the_released_one(case, prefix):
    variant, every, steps = STRESSED[prefix]
    run = defended(case.name, variant, "clean", every, steps)
    numbers = of_states(run) | of_inputs(run) | {"seg_n_steps": run.of_segments("steps")}
    return {name: value for name, value in numbers.items() if name not in ("final9", "seg_res_abs")}
