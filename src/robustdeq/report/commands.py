"""The commands that go on in a store or evaluate its model anew, as they can be pasted into a shell."""

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
from robustdeq.report.sources import Result
from robustdeq.threat import Linf, number

ROOT = "data"
"""Where the docs have the data: a store does not say where they lay."""
ROOT_NOTE = (
    f"--data-root {ROOT}: put the folder of your data there. CIFAR-10 is also found without it, where the environment "
    "variable ROBUSTDEQ_DATA names that folder."
)

_USUAL = {key: p.default for key, p in signature(evaluate).parameters.items()} | {"norm": "Linf"}
_WITHOUT_ROOT = ("digits", "tensors")

Settings = dict[str, Any]


def again(
    r: Result,
    suite: str,
    out: str,
    *,
    defence: Settings | None = None,
    union: bool = False,
    aware: bool = False,
    keep_images: bool = False,
    sources: Sequence[str] = (),
) -> str:
    """What evaluates the predictor of a store by a suite, with every flag that the store insists on.

    Args:
        r: The result.
        suite: By name or file.
        out: The folder of the results: the store's own, if it goes on.
        defence: Flags of the defence, none of them for the undefended model; those of the store if not given.
        union: As of `evaluate`, and so are the next.
        aware: With attacks through the defence.
        keep_images: Of the attacks.
        sources: Other stores whose kept images are shown to it.
    """
    switches = {"union": union, "aware": aware, "keep_images": keep_images}
    on = {key: value for key, value in switches.items() if value}
    if _from_python(r):
        return _in_python(r, suite, out, on | ({"sources": [*sources]} if sources else {}), defence)
    flags = _settings(r) | (defence_flags(r) if defence is None else defence) | on
    words = ["robustdeq", "evaluate", r.store.manifest.model.name, *_words(flags), "--suite", suite]
    return shlex.join([*words, *(["--sources", *sources] if sources else []), "--out", out])


def go_on(r: Result, *, sources: Sequence[str] = ()) -> list[str]:
    """What goes on in a store: its suites as they were asked for, each by a command; with further sources if given."""
    manifest = r.store.manifest
    needed = [*_needed_sources(r), *sources]
    return [
        again(
            r,
            entry.suite,
            folder(r),
            union=manifest.union,
            aware=entry.aware,
            keep_images=entry.keep_images,
            sources=needed,
        )
        for entry in manifest.asked
    ]


def _needed_sources(r: Result) -> list[str]:
    """Stores whose images a store has still to be shown."""
    specs = (record.spec for record in r.store.manifest.attacks.values())
    written = {s.options["store"] for s in specs if s.attack == "stored" and not r.store.complete(s.name)}
    found, here = sorted(source_at(text, r.store.folder) for text in written), Path.cwd()
    return [(path.relative_to(here) if path.is_relative_to(here) else path).as_posix() for path in found]


def from_recipe(recipe: str, out: str, defence: Settings) -> str:
    """What evaluates the weights of a recipe by suite paper: those that are shipped, else those it trains first."""
    root = {} if recipe.startswith(_WITHOUT_ROOT) else {"data_root": ROOT}
    known = recipe in shipped()
    train = ["robustdeq", "train", "--recipe", recipe, "--out", f"runs/{recipe}", *_words(root)]
    ckpt = recipe if known else f"runs/{recipe}/best"
    judge = ["robustdeq", "evaluate", ckpt, *_words(root | defence), "--suite", "paper", "--out", out]
    return shlex.join(judge) if known else f"{shlex.join(train)} && {shlex.join(judge)}"


def defence_flags(r: Result) -> Settings:
    """Of the entropy reduction that is deployed in a store; empty without one."""
    entropy = r.entropy
    if entropy is None:
        return {}
    flags = {"every": entropy.every, "steps": entropy.steps, "variant": entropy.variant}
    usual = {"every": MAIN[0], "steps": MAIN[1], "variant": "paper"}
    given = {k: v for k, v in flags.items() if v != usual[k]} | entropy.changed_switches
    return {"defence": "entropy"} | {f"defence.{k}": str(v).lower() for k, v in given.items()}


def folder(r: Result, end: str = "") -> str:
    """That of a store, or one beside it."""
    return r.store.folder.as_posix() + end


def _settings(r: Result) -> Settings:
    """What the store insists on or is used to besides the defence, where it is not what `evaluate` takes by itself."""
    manifest, metadata, name = r.store.manifest, r.metadata, r.data.name
    given = {
        "data": None if metadata.get("dataset") == name else name,
        "data_root": None if name in _WITHOUT_ROOT else ROOT,
        "limit": r.data.limit,
        **{key: getattr(manifest, key) for key in ("batch_size", "shard_size", "seed")},
        "norm": type(manifest.threat).__name__,
        "eps": _eps(r),
        "state": r.state if r.dynamic and r.state != str(min(8, r.states)) else None,
    }
    return {key: value for key, value in given.items() if value not in (None, _USUAL.get(key))}


def _eps(r: Result) -> str | None:
    """The very same budget, None where it is the one that the checkpoint says."""
    threat, trained_for = r.store.manifest.threat, r.metadata.get("eps")
    if isinstance(threat, Linf) and trained_for is not None and number(trained_for, "eps") == threat.eps:
        return None
    return r.eps if number(r.eps, "eps") == threat.eps else repr(threat.eps)


def _words(flags: Settings) -> list[str]:
    """True is a flag without a value."""
    named = {f"--{key.replace('_', '-')}": value for key, value in flags.items() if not key.startswith("defence.")}
    named |= {f"--{key}": value for key, value in flags.items() if key.startswith("defence.")}
    return [word for key, value in named.items() for word in ([key] if value is True else [key, str(value)])]


def _from_python(r: Result) -> bool:
    """Whether it was made by `robustdeq.evaluate`, so that no CKPT names the predictor: it is called by its class."""
    model = r.store.manifest.model
    kind = model.config["kind"] if isinstance(model.config, dict) else model.config
    return r.data.name == "tensors" or f".{kind}".endswith(f".{model.name}")


def _in_python(r: Result, suite: str, out: str, on: Settings, defence: Settings | None) -> str:
    """The call; whoever made the predictor and the images has them."""
    threat, images = r.store.manifest.threat, r.data.name
    same = defence is None or bool(defence) == (r.entropy is not None)
    predictor = "predictor" if same else "defended" if defence else "undefended"
    given = {key: value for key, value in _settings(r).items() if key in _USUAL and key not in ("data", "norm")} | on
    if r.store.manifest.all_states == r.store.manifest.union:  # not what they are by themselves
        given["all_states"] = r.store.manifest.all_states
    words = [predictor, "(x, y)" if images == "tensors" else repr(images), repr(suite), repr(out)]
    words += [f"threat=robustdeq.{type(threat).__name__}({threat.eps!r})"]
    words += ["also=also"] if not set(r.store.manifest.predictors) <= {"deployed", "base"} else []
    return f"robustdeq.evaluate({', '.join([*words, *(f'{key}={value!r}' for key, value in given.items())])})"
