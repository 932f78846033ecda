"""`robustdeq.evaluate`: attack a predictor with a suite, store the results, and return a verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from robustdeq.data import Images, load_dataset
from robustdeq.evaluation.audit.conclusion import announce
from robustdeq.evaluation.audit.escalation import escalation
from robustdeq.evaluation.audit.judge import finish_audit
from robustdeq.evaluation.run.fingerprint import batch_dependent, fingerprint, first_logits
from robustdeq.evaluation.run.plan import Plan, join, make_plan
from robustdeq.evaluation.run.progress import Deadline, Progress
from robustdeq.evaluation.run.runner import Runner
from robustdeq.evaluation.store.manifest import DataRecord, SuiteRequest
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.build import check_buildable
from robustdeq.evaluation.suites.opaque import PASSES, Averaged
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Callee, Subject
from robustdeq.evaluation.suites.suite import UNROLLINGS, Context, SuiteChoice
from robustdeq.evaluation.verdict import Verdict, read_verdict
from robustdeq.threat import Linf, Threat

CUT_OFF = (
    "the time budget ended within the escalation, so the union may be lower still: the same command goes on with it"
)
EXPECTED = (
    f"the predictor is random: it is attacked and judged by its mean logits over {PASSES} passes (expectation over "
    "transformation)"
)


def evaluate(
    predictor: Callee,
    data: tuple[Tensor, Tensor] | str,
    suite: SuiteChoice = "quick",
    out: str | Path = "runs/evaluation",
    *,
    base: Callee | None = None,
    threat: Threat | None = None,
    seed: int = 0,
    batch_size: int = 100,
    shard_size: int = 500,
    union: bool = False,
    budget: float | None = None,
    limit: int | None = None,
    keep_images: bool | None = None,
    all_states: bool | None = None,
    aware: bool = False,
    unrollings: Sequence[int] = UNROLLINGS,
    also: Mapping[str, Callee] | None = None,
    sources: Sequence[str | Path] = (),
    name: str | None = None,
    data_root: str | Path | None = None,
    data_options: Mapping[str, Any] | None = None,
    command: str | None = None,
    report: Callable[[Progress], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Verdict:
    """Attack a predictor and store the results; calling it again resumes an evaluation that was interrupted.

    Args:
        predictor: Pixels in [0, 1] to logits: a model, a defence around one, or any differentiable function. It is
            judged as it is; `robustdeq evaluate` wraps a DEQ in `EarlyState(model, state=8)` first.
        data: Images (B, C, H, W) in [0, 1] (or uint8) and labels (B,), or the name of a data set with test images.
        suite: Shipped suite (quick, grid, autoattack, audit, transfer, paper, table4, settings), YAML file, `Suite`, or
            function that builds a `Suite` from a `Context`.
        out: Folder of the store.
        base: Static base that the predictor is compared with, attacked and scored beside it; by default the undefended
            model of a defence of this package, else none.
        threat: Ball that adversarial images stay in; by default Linf with the eps that the model's checkpoint carries,
            or the paper's 8/255 if it carries none.
        seed: Seed of everything random.
        batch_size: Images attacked at a time; a kill loses at most one batch of a long attack.
        shard_size: Images per work item and result file; several processes share the items.
        union: Leave misclassified images out, drop images once an attack breaks them, and run the cheapest attacks
            first: gives the accuracy under the union of all attacks faster.
        budget: Seconds after which the evaluation stops. A work item that is expected to take longer is not started; an
            attack that does take longer is given up.
        limit: Number of images to use, the first of the data.
        keep_images: Whether to store adversarial images; by default, if the suite asks for it.
        all_states: Whether to score every state, not only the deployed one; by default, unless `union`.
        aware: Also attack a defended predictor through its defence.
        unrollings: Unrolling steps K_a of the grid's attacks; fewer make a faster, weaker grid.
        also: Further predictors to score every adversarial image on, by name; by default the suite's, and the
            undefended "base" of a defended predictor.
        sources: Other stores whose kept images are scored on this predictor.
        name: Name of the model in the store; by default its class or function.
        data_root: Folder of a named data set.
        data_options: Options of a named data set.
        command: Command line that this call stands for; the store and its report show it.
        report: Progress callback.
        say: Called with one line before the attacks start: what so many images can tell, if the suite is the audit.
    """
    subject = Subject(predictor, base)
    if aware:
        _check_defended(subject)
    x, y, description = load_images(data, limit, data_root, data_options or {})
    logits = checked_first_logits(subject, x, y)
    classes = logits.shape[1]
    if base is not None and (others := first_logits(Subject(base), x).shape[1]) != classes:
        raise ValueError(f"the predictor tells {classes} classes apart, its static base {others}: nothing to compare")
    threat = chosen_threat(subject, threat)
    store = Store(out)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    answers = fingerprint(logits, first_logits(subject, x))
    context = Context(
        subject,
        threat,
        aware=aware,
        store=store,
        union=union,
        sources=[Path(s) for s in sources],
        classes=classes,
        data=description,
        unrollings=unrollings,
    )
    chosen = make_suite(suite, context)
    if answers is None and chosen.audited and subject.dynamic is None:  # it is random: judged in expectation
        subject = Subject(Averaged(predictor), base)
        chosen = replace(chosen, notes=[*chosen.notes, EXPECTED])
    asked = str(suite) if isinstance(suite, str | Path) else chosen.name
    keep, until = chosen.keep_images if keep_images is None else keep_images, Deadline(budget)
    plan = make_plan(
        str(name or getattr(predictor, "__qualname__", type(predictor).__name__)),
        scored_predictors(subject, chosen.also if also is None else also, default_base=also is None),
        chosen,
        SuiteRequest(suite=asked, aware=aware, keep_images=bool(keep_images), command=command),
        world_size,
        data=description,
        threat=threat,
        seed=seed,
        batch_size=_positive("batch_size", batch_size),
        shard_size=_positive("shard_size", shard_size),
        union=union,
        all_states=not union if all_states is None else all_states,
        answers=answers,
    )

    def carried_out(plan: Plan) -> tuple[Runner, bool]:
        check_buildable(plan.specs, subject, seed, classes)
        join(store, plan.wanted, rank, lambda: any(batch_dependent(s, x) for s in plan.scored.values()))
        runner = Runner(
            plan, x, y, store, budget=until.left(), keep_images=keep, rank=rank, world_size=world_size, report=report
        )
        return runner, runner.run()

    store.clean_up()
    if chosen.audited and say is not None:
        say(announce(len(y), beside=subject.undefended is not None))
    runner, complete = carried_out(plan)
    audited, number = chosen.audited and complete, 0
    while complete and number < chosen.rounds and (more := escalation(store, plan, number + 1, classes)):
        number += 1
        plan = plan.extended(more)
        runner, complete = carried_out(plan)
    audit = finish_audit(plan, store, x, y, write=rank == 0, report=runner.say) if audited else None
    found = read_verdict(store, complete=complete, bounds=runner.bounds.now(), audit=audit, given_up=runner.given_up)
    return replace(found, notes=[*found.notes, CUT_OFF]) if audited and not complete else found


def checked_first_logits(subject: Subject, x: Tensor, y: Tensor) -> Tensor:
    """The logits of the first images, after a check that there is one for every label."""
    logits = first_logits(subject, x)
    if int(y.max()) >= logits.shape[1]:
        raise ValueError(
            f"the images have labels up to {int(y.max())}, the predictor tells {logits.shape[1]} classes apart: was it "
            "made for other data?"
        )
    return logits


def chosen_threat(subject: Subject, threat: Threat | None) -> Threat:
    """The threat, by default Linf with the eps that the model's checkpoint carries, or with 8/255."""
    threat = Linf(8 / 255 if subject.eps is None else subject.eps) if threat is None else threat
    if not isinstance(threat, Threat):
        raise TypeError(f"threat is a ball such as Linf(8 / 255) or L2(0.5), got {threat!r}")
    return threat


def _check_defended(subject: Subject) -> None:
    """Refuse --aware for a predictor without a defence to attack through."""
    if not subject.defended:
        why = (
            "the predictor has no defence: add --defence entropy (or wrap it in EntropyReduction)"
            if subject.dynamic is not None
            else "the predictor has no dynamics to look into: its own gradient is all there is, defended or not"
        )
        raise ValueError(f"--aware attacks through a defence, and {why}; or drop --aware")


def load_images(
    data: tuple[Tensor, Tensor] | str, limit: int | None, root: str | Path | None, options: Mapping[str, Any]
) -> tuple[Tensor, Tensor, DataRecord]:
    """Checked images and labels, and their record for the manifest."""
    if isinstance(data, str):
        images: Images = load_dataset(data, root, **options).test
        x, y, name, split = images.pixels, images.labels, data, "test"
    else:
        parts = data if isinstance(data, tuple) else (data,)
        if len(parts) != 2 or not all(isinstance(part, Tensor) for part in parts):
            raise TypeError(
                "data are images and labels as two tensors, (x, y), or the name of a data set; got "
                f"{' and '.join(type(part).__name__ for part in parts)}: torch.as_tensor makes tensors of arrays"
            )
        (x, y), name, split = parts, "tensors", "given"
    if x.ndim < 2 or x.layout is not torch.strided or not (x.is_floating_point() or x.dtype == torch.uint8):
        raise ValueError(
            "images are dense tensors (images, channels, height, width) of floating-point or 8-bit pixels; "
            f"got {x.dtype} of shape {[*x.shape]}, {x.layout}"
        )
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"labels are whole numbers from 0 on, one for each image; got {y.dtype} of shape {[*y.shape]}")
    if len(x) != len(y):
        raise ValueError(f"expected one label for each of the {len(x)} images, got {len(y)}")
    x = x.detach()
    if x.dtype != torch.uint8 and len(x) and (float(x.min()) < 0 or float(x.max()) > 1):
        raise ValueError(
            f"pixels must lie in [0, 1], got [{float(x.min()):g}, {float(x.max()):g}]; divide 8-bit images by 255"
        )
    if len(y) and int(y.min()) < 0:
        raise ValueError(f"labels are whole numbers from 0 on, got {int(y.min())}")
    if limit is not None:
        x, y = x[: _positive("limit", limit)], y[:limit]
    if not len(x):
        raise ValueError("there are no images to evaluate on")
    y = y.long()
    return x, y, DataRecord(name=name, split=split, images=len(y), limit=limit, sha256=_checksum(x, y))


def _checksum(x: Tensor, y: Tensor) -> str:
    """First 12 hex digits of the SHA-256 over images and labels."""
    digest = hashlib.sha256(f"{tuple(x.shape)} {x.dtype}".encode())
    digest.update(x.cpu().contiguous().numpy().tobytes())
    digest.update(y.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def scored_predictors(subject: Subject, also: Mapping[str, Callee], *, default_base: bool) -> dict[str, Subject]:
    """All predictors that images are scored on, by name; the deployed one comes first."""
    if "deployed" in also:
        raise ValueError("'deployed' is the predictor under evaluation: name the others differently")
    base = {"base": subject.undefended} if default_base and subject.undefended is not None else {}
    return {"deployed": subject, **{name: Subject(other) for name, other in {**base, **also}.items()}}


def _positive(name: str, value: int) -> int:
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value
