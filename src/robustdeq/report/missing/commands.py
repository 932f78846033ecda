"""Commands that resume a store or evaluate its predictor again, ready to be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from robustdeq.evaluation import evaluate
from robustdeq.evaluation.store.sources import source_at
from robustdeq.evaluation.suites.variants import MAIN
from robustdeq.models.pretrained import shipped
from robustdeq.report.results import Result
from robustdeq.threat import number

ROOT = "data"
"""The data folder of the documentation; older stores do not say where theirs was."""
ROOT_NOTE = (
    f"--data-root {ROOT}: put the folder of your data there. CIFAR-10 is also found without it, where the environment "
    "variable ROBUSTDEQ_DATA names that folder."
)
ENTROPY = ("--defence", "entropy")

_DEFAULTS = {name: parameter.default for name, parameter in signature(evaluate).parameters.items()}
_WITHOUT_ROOT = ("digits", "tensors")
_GIVEN_ANEW = ("--suite", "--out", "--budget", "--sources", "--union", "--aware", "--keep-images")


def resume(r: Result, sources: Sequence[str] = ()) -> list[str]:
    """The commands that resume a store, one for each suite: those that made it, or the same rebuilt from the manifest.

    `sources` are folders of further stores, whose kept images are to be shown to the predictor.
    """
    manifest, shown = r.manifest, [*_unfinished_sources(r), *sources]
    found = []
    for request in {(entry.suite, entry.aware, entry.keep_images): entry for entry in manifest.asked}.values():
        if request.command is not None:
            words = shlex.split(request.command)
            if sources and "--sources" not in words:
                words.append("--sources")
            place = words.index("--sources") + 1 if sources else 0
            words[place:place] = sources
            found.append(shlex.join(words))
            continue
        flags = {"--union": manifest.union, "--aware": request.aware, "--keep-images": request.keep_images}
        on = [flag for flag, given in flags.items() if given]
        found.append(evaluate_again(r, request.suite, folder(r), *on, sources=shown))
    return found


def evaluate_again(
    r: Result, suite: str, out: str, *flags: str, defence: Sequence[str] | None = None, sources: Sequence[str] = ()
) -> str:
    """The command that evaluates the predictor of a store by another suite or into another folder.

    `flags` are switches of `robustdeq evaluate`. `defence` holds the words that choose the defence, empty for the
    undefended model; the store's own if not given.
    """
    command = next((entry.command for entry in reversed(r.manifest.asked) if entry.command is not None), None)
    if command is not None:
        words = _other_words(r, command, (*_GIVEN_ANEW, *(["--defence"] if defence is not None else [])))
        words += defence or []
    elif _from_python(r):
        return _python_call(r, suite, out, flags, defence, sources)
    else:
        words = ["robustdeq", "evaluate", r.manifest.model.name, *_settings(r)]
        words += _defence(r) if defence is None else defence
    shown = ["--sources", *sources] if sources else []
    return shlex.join([*words, *flags, "--suite", suite, *shown, "--out", out])


def evaluate_recipe(recipe: str, out: str, defence: Sequence[str] = ()) -> str:
    """The command that evaluates the weights of a recipe by suite paper, and trains them first unless they ship."""
    known = recipe in shipped()
    checkpoint = recipe if known else f"runs/{recipe}/best"
    judge = shlex.join(
        ["robustdeq", "evaluate", checkpoint, *_root(recipe), *defence, "--suite", "paper", "--out", out]
    )
    return judge if known else f"{train(recipe, f'runs/{recipe}')} && {judge}"


def train(recipe: str, out: str, *flags: str) -> str:
    """The command that trains a recipe."""
    return shlex.join(["robustdeq", "train", "--recipe", recipe, *flags, "--out", out, *_root(recipe)])


def _root(recipe: str) -> list[str]:
    return [] if recipe.startswith(_WITHOUT_ROOT) else ["--data-root", ROOT]


def folder(r: Result, end: str = "") -> str:
    """The folder of a store, or one beside it whose name ends so."""
    return r.store.folder.as_posix() + end


def _other_words(r: Result, command: str, options: Sequence[str]) -> list[str]:
    """The words of a stored command without some of its options, their values and their sub-options."""
    kept, dropping = [], False
    for word in shlex.split(command):
        if word.startswith("--"):
            dropping = word.split("=")[0].split(".")[0] in options
        if not dropping or word == r.manifest.model.name:
            kept.append(word)
    return kept


def _unfinished_sources(r: Result) -> list[str]:
    """Folders of the stores whose images the predictor has not been shown completely."""
    specs = (record.spec for record in r.manifest.attacks.values())
    written = {spec.options["store"] for spec in specs if spec.attack == "stored" and not r.store.complete(spec.name)}
    found, here = sorted(source_at(text, r.store.folder) for text in written), Path.cwd()
    return [(path.relative_to(here) if path.is_relative_to(here) else path).as_posix() for path in found]


def _settings(r: Result) -> list[str]:
    """Options besides the defence that differ from what `robustdeq evaluate` chooses by itself."""
    manifest, state, metadata = r.manifest, r.record.deployed_state, r.manifest.model.metadata
    norm, eps, trained_for = type(manifest.threat).__name__, manifest.threat.eps, metadata.get("eps")
    own_eps = norm == "Linf" and trained_for is not None and number(trained_for, "eps") == eps
    to_the_last_digit = r.eps if number(r.eps, "eps") == eps else repr(eps)
    given = {
        "data": None if metadata.get("dataset") == manifest.data.name else manifest.data.name,
        **_run_settings(r),
        "norm": None if norm == "Linf" else norm,
        "eps": None if own_eps else to_the_last_digit,
        "state": None if not manifest.dynamic or state == str(min(8, r.states)) else state,
    }
    pairs = ((f"--{key.replace('_', '-')}", str(value)) for key, value in given.items() if value is not None)
    return [word for pair in pairs for word in pair]


def _run_settings(r: Result) -> dict[str, Any]:
    """Arguments of `evaluate` that differ from their defaults."""
    names = ("batch_size", "shard_size", "seed")
    root = None if r.manifest.data.name in _WITHOUT_ROOT else ROOT
    given = {"data_root": root, "limit": r.manifest.data.limit, **{name: getattr(r.manifest, name) for name in names}}
    return {name: value for name, value in given.items() if value != _DEFAULTS[name]}


def _defence(r: Result) -> list[str]:
    """Options of the deployed entropy reduction; empty without one."""
    entropy = r.entropy
    if entropy is None:
        return []
    own = {"every": entropy.every, "steps": entropy.steps, "variant": entropy.variant}
    usual = {"every": MAIN[0], "steps": MAIN[1], "variant": "paper"}
    given = {k: v for k, v in own.items() if v != usual[k]} | entropy.changed_switches
    return [*ENTROPY, *(word for k, v in given.items() for word in (f"--defence.{k}", str(v).lower()))]


def _from_python(r: Result) -> bool:
    """Whether an older store was made by `robustdeq.evaluate`: it then calls the predictor by its class."""
    model = r.manifest.model
    kind = model.config["kind"] if isinstance(model.config, dict) else model.config
    return r.manifest.data.name == "tensors" or f".{kind}".endswith(f".{model.name}")


def _python_call(
    r: Result, suite: str, out: str, flags: Sequence[str], defence: Sequence[str] | None, sources: Sequence[str]
) -> str:
    """The call of `robustdeq.evaluate`, in which predictor, x and y stand for the caller's own objects."""
    manifest, data = r.manifest, r.manifest.data.name
    same = defence is None or bool(defence) == (r.entropy is not None)
    predictor = "predictor" if same else "defended" if defence else "undefended"
    given = _run_settings(r) | {flag.strip("-").replace("-", "_"): True for flag in flags}
    given |= {"sources": [*sources]} if sources else {}
    if manifest.all_states == manifest.union:  # not what they are by default
        given["all_states"] = manifest.all_states
    words = [predictor, "(x, y)" if data == "tensors" else repr(data), repr(suite), repr(out)]
    words += [f"threat=robustdeq.{type(manifest.threat).__name__}({manifest.threat.eps!r})"]
    words += ["also=also"] if not set(manifest.predictors) <= {"deployed", "base"} else []
    return f"robustdeq.evaluate({', '.join([*words, *(f'{key}={value!r}' for key, value in given.items())])})"
