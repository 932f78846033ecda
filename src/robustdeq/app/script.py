"""The Python that shows a case again."""

from __future__ import annotations

import torch

from robustdeq.app.calls import Name
from robustdeq.app.catalogue import PHOTOS
from robustdeq.app.look import Looked
from robustdeq.host.references import is_reference, module_of


def script(looked: Looked) -> str:
    """A script that makes the attacked image of a view, and prints the predictions at every state."""
    case = looked.case
    own = looked.flags[looked.flags.index("--import") + 1].split(",") if "--import" in looked.flags else []
    own = [f"import {module}" for module in own]
    own += [f"import {module_of(getattr(case, name))}" for name in case.own]
    trust = ", trust=True" if "--trust" in looked.flags else ""
    model = f"rd.load({case.model!r}{trust})"
    if is_reference(case.model):
        module, _, function = case.model.partition(":")
        own.append(f"from {module} import {function.split('.')[0]}")
        model = f"{function}(){'.eval()' if looked.is_module else ''}"
    lines = ["import sys", ""] if own else []
    lines += ["import torch", "", "import robustdeq as rd", *_imports(looked), ""]
    lines += ['sys.path.insert(0, "")  # modules of the current folder', *own, ""] if own else []
    lines.append(f"model = {model}")
    lines += _image(looked)
    if looked.clean.dtype != torch.float32:
        lines.append(f"x = x.to({looked.clean.dtype})")
    lines.append(f"deployed = {looked.deployed.name if isinstance(looked.deployed, Name) else looked.deployed}")
    label = looked.view.label
    test = case.image.startswith("test:") and case.label is None
    if test:
        lines.append("y = test.labels[k]")
    else:
        lines.append(f"y = torch.tensor([{label}])" if looked.labelled else "y = deployed(x).argmax(1)")
    if looked.attack is None:
        lines.append("attacked = x")
    else:
        lines += [f"oracle = {looked.oracle}", f"attack = {looked.attack}", "attacked = attack(oracle, x, y).images"]
    if looked.view.states:
        followed = ['("clean", model, x)', '("attacked", model, attacked)', '("defended", deployed, attacked)']
        whole = looked.view.traces[-1].residual  # a defence without dynamics has no states
        lines += [
            "for name, predictor, image in (",
            f"    {', '.join(followed if whole else followed[:-1])},",
            "):",
            "    print(name, predictor.trajectory(image).logits.argmax(-1)[:, 0].tolist())",
        ]
    lines.append("print(deployed(attacked).softmax(-1))")
    return "\n".join(lines) + "\n"


def _imports(looked: Looked) -> list[str]:
    kind = looked.case.image.partition(":")[0]
    if kind == "test":
        return ["from robustdeq.data import load_dataset"]
    first = {"photo": ["from importlib import resources"], "data": ["from base64 import b64decode"]}.get(kind, [])
    return [
        *first,
        *(["from pathlib import Path"] if kind == "data" else []),
        "from robustdeq.data.photos import read_photo",
    ]


def _image(looked: Looked) -> list[str]:
    kind, _, rest = looked.case.image.partition(":")
    shape = tuple(looked.clean.shape[1:])
    if kind == "test":
        assert looked.dataset is not None
        root = [] if looked.data_root is None else [repr(str(looked.data_root))]
        options = [f"{name}={value!r}" for name, value in looked.data_options.items()]
        given = ", ".join([repr(looked.dataset), *root, *options])
        return [f"test, k = load_dataset({given}).test, [{int(rest)}]", "x = test.pixels01(k)"]
    if kind == "photo":
        file = f'resources.files("sklearn.datasets") / "images" / {PHOTOS[rest]!r}'
    elif kind == "data":
        content = looked.case.image.partition("base64,")[2]
        return [
            f'Path("image.png").write_bytes(b64decode("{content}"))',
            f'x = read_photo("image.png", {shape}).pixels[None] / 255',
        ]
    else:
        file = repr(looked.case.image)
    return [f"x = read_photo({file}, {shape}).pixels[None] / 255"]
