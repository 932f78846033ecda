"""From a case to a view: attack the image, run the passes, and collect what is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustdeq.app.calls import Call, Name, attack_of, deployed_of, oracle_of
from robustdeq.app.case import Case, called
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.pictures import magnified
from robustdeq.app.views import View, columns_of, distances, path_of, plane_through, trace_of
from robustdeq.attacks import Attack
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.host.references import blaming
from robustdeq.models.predictor import DynamicPredictor
from robustdeq.threat import number

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much; may raise an error to stop the work."""
Deploy = Callable[..., Any]
"""deploy(predictor, flags, eps, state): the predictor behind the defence that the flags name, read at a state."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Looked:
    """A case with everything that its defaults became, and what was found."""

    case: Case
    view: View
    eps: float
    clean: Tensor
    attacked: Tensor
    attack: Call | None
    oracle: Call
    deployed: Call | Name
    is_module: bool
    """Whether the model is a torch module, whose mode matters."""
    dataset: str | None
    data_root: Path | None
    flags: tuple[str, ...]
    """Further flags of the command line: where the data are, and whose code may run."""
    data_options: dict[str, Any]
    labelled: bool
    """Whether the label was given or is the test set's."""

    @property
    def digest(self) -> str:
        """A short name of the case."""
        return hashlib.sha256(self.case.query.encode()).hexdigest()[:10]

    @property
    def command(self) -> str:
        """The command line that writes this view into a folder."""
        return self.case.command(*self.flags, "--export", "case")


def look(case: Case, catalogue: Catalogue, deploy: Deploy, progress: Progress = lambda *_: None) -> Looked:
    """Attack the image of a case and follow the clean, the attacked and the defended pass."""
    progress("loading", 0, 1)
    catalogue.check_code(case)
    known = catalogue.open(case.model)
    model = known.predictor
    case = replace(case, image=case.image or catalogue.first_image(known))
    x, label, notes = catalogue.image(known, case.image)
    x = Subject(model).pixels(x).to(Subject(model).dtype)
    eps = number(case.eps, "eps") if case.eps else known.required("eps")
    if not 0 <= eps <= 1:
        raise ValueError(f"eps must be between 0 and 1, got {eps:g}")
    dynamic = isinstance(model, DynamicPredictor)
    own = "defence" in case.own
    defending = own or (case.defence == "entropy" and dynamic and not model.defended)
    flags = {name: value for name, value in vars(case).items() if name.startswith("defence") and value is not None}
    flags = {name: value for name, value in flags.items() if own == (name == "defence_own") or name == "defence"}
    state = case.state or None
    plain = deploy(model, {}, eps, state)
    deployed = deploy(model, flags, eps, state) if defending else plain
    if not dynamic:
        notes.append("this model has no dynamics: there are no states to follow")
    progress("clean image", 0, 1)
    with torch.no_grad(), blaming(case.defence, "it fails") if own else nullcontext():
        said = deployed(x) if own or (label is None and case.label is None) else plain(x)
        known.check_logits(said, 1)
    classes = known.classes or tuple(map(str, range(said.shape[1])))
    given = label if case.label is None else case.label
    if given is not None and not 0 <= given < len(classes):
        raise ValueError(f"a label is 0 to {len(classes) - 1}, got {given}")
    finite = bool(said.isfinite().all())
    label = given if given is not None else int(said.argmax()) if finite else None
    attacked, call = x, None
    oracle = oracle_of(case, isinstance(deployed, DynamicPredictor))
    if case.attack != "none" and label is not None and eps > 0:
        call = attack_of(case, eps)
        total = 1 + case.steps
        attack = call.make()
        if not isinstance(attack, Attack):
            raise ValueError(f"{case.attack} made a {type(attack).__name__}; expected a robustdeq.Attack: subclass it")
        result = attack(
            oracle.make(deployed=deployed),
            x,
            torch.tensor([label], device=x.device),
            watch=lambda queries: progress(
                f"{called(case.attack)} on the image", int(queries.max()), max(total, int(queries.max()))
            ),
        )
        attacked = result.images
    progress("following the states", 0, 1)
    view = _view(plain, deployed if defending else None, x, attacked, label, classes)
    where = "as given" if case.label is not None else "of the test set" if given is not None else "as predicted"
    return Looked(
        case=case,
        view=replace(view, label_is=where, defence=called(case.defence), notes=[*notes, *view.notes]),
        eps=eps,
        clean=x,
        attacked=attacked,
        attack=call,
        oracle=oracle,
        deployed=deployed_of(deployed, plain, model, case, eps),
        is_module=isinstance(model, nn.Module),
        dataset=known.dataset,
        data_root=catalogue.data_root,
        flags=tuple(catalogue.flags),
        data_options=known.options_for(known.dataset) if known.dataset else {},
        labelled=given is not None,
    )


def _view(plain: Any, defended: Any, x: Tensor, attacked: Tensor, label: int | None, classes: tuple[str, ...]) -> View:
    columns, column = columns_of(plain)
    moved = not torch.equal(attacked, x)
    followed = [("clean", "clean image", plain, x)]
    if moved:
        followed.append(("attacked", "attacked image", plain, attacked))
    if defended is not None:
        followed.append(("defended", "attacked, with defence" if moved else "with defence", defended, attacked))
    traced = [trace_of(*pass_, label, columns, column) for pass_ in followed]
    traces, passes = [trace for trace, _ in traced], [walked for _, walked in traced]
    clean = passes[0]
    if clean is not None:
        others = [distances(at, clean) if at is not None and at is not clean else [] for at in passes]
        traces = [replace(trace, distance=apart) for trace, apart in zip(traces, others, strict=True)]
    path = None if defended is None or passes[-1] is None else path_of(x, passes[-1])
    broken = [trace.name for trace in traces if None in trace.prediction]
    notes = [f"the {' and the '.join(broken)} pass is not finite: states without a value are left out"] * bool(broken)
    return View(
        columns=columns,
        deployed=column,
        label=label,
        label_is="",
        classes=classes,
        traces=traces,
        perturbation=magnified((attacked - x)[0]) if moved else None,
        moved=float((attacked - x).abs().max()),
        plane=plane_through(plain, passes),
        path=path,
        notes=notes,
    )
