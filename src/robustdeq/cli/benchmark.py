"""`robustdeq benchmark`: one command to clean accuracy, AutoAttack, the union of all attacks, and flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Unpack

from robustdeq.cli.arguments.defence_flags import DefenceFlags


def run(
    ckpt: str,
    *,
    limit: int = 1000,
    out: Path | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    eps: str | None = None,
    norm: Literal["Linf", "L2"] = "Linf",
    state: str | None = None,
    seed: int = 0,
    batch_size: int = 100,
    device: str = "auto",
    as_json: bool = False,
    trust: bool = False,
    imports: str | None = None,
    command: Sequence[str] = (),
    **flags: Unpack[DefenceFlags],
) -> None:
    """Clean accuracy, AutoAttack, the union of all attacks of the audit, and its flags; the same command resumes.

    The expected time is measured on a few images and printed first. It is `robustdeq evaluate --suite benchmark` on the
    predictor as it is: a model is read at its final state unless --state says otherwise.

    Args:
        ckpt: A checkpoint folder, a shipped checkpoint's name, hf:user/name, or package.module:function that returns a
            predictor.
        limit: Number of test images, the first ones.
        out: Folder of the results; by default one in runs/benchmark that belongs to these weights and settings.
        data: cifar10, digits or folder; by default what the checkpoint was trained on.
        data_root: Folder of the data; by default where the checkpoint was trained.
        eps: Radius of the attacks, such as 8/255; by default what the checkpoint was trained for.
        norm: Norm of the radius.
        state: State that predicts, 1..N or final; by default as the predictor does.
        seed: Seed of everything random.
        batch_size: Images attacked at a time.
        device: auto, cpu, cuda, mps.
        as_json: Print the result as JSON instead of a table; progress goes to standard error.
        trust: Run code outside robustdeq that the checkpoint names; not needed in the folder that it was trained in.
        imports: Module of your own to import first, such as one that registers models (several: separated by commas); a
            checkpoint may name it.
        command: The words of the command line, which the store keeps.
        **flags: Of the defence.
    """
    import robustdeq.evaluation
    from robustdeq.cli.arguments.checkpoint import budget_of, resolve
    from robustdeq.cli.arguments.deploy import deployed
    from robustdeq.cli.evaluate import attack
    from robustdeq.evaluation.suites.subject import Subject
    from robustdeq.host.references import import_modules

    checkpoint = resolve(ckpt, trust or import_modules(imports))
    own = Subject(checkpoint.predictor).early_state is not None
    attack(
        robustdeq.evaluation.benchmark,
        checkpoint,
        deployed(checkpoint.predictor, flags, checkpoint.eps, state or (None if own else "final")),
        data=data,
        data_root=data_root,
        threat=budget_of(checkpoint, eps, norm),
        device=device,
        as_json=as_json,
        command=command,
        n=limit,
        out=out,
        seed=seed,
        batch_size=batch_size,
    )
