"""The model card of a checkpoint: data, threat, numbers with intervals, how to reproduce them, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from robustdeq.models.hub.repository import PREFIX

TRAINED = {
    "objective": "objective",
    "states": "state policy",
    "jacobian": "Jacobian penalty",
    "seed": "seed",
    "step": "steps",
}
"""Entries of the metadata that describe a training."""


@runtime_checkable
class Result(Protocol):
    """What an evaluation returned, such as a `robustdeq.Benchmark`."""

    def table(self) -> str:
        """Its numbers with intervals, as text."""
        ...


def model_card(
    name: str | None, kind: str, metadata: Mapping[str, Any], modules: Sequence[str], results: Sequence[Result]
) -> str:
    """The content of README.md.

    Args:
        name: What `load` takes, such as hf:user/name or the name of a shipped checkpoint; None for a folder.
        kind: Name of the architecture or of its preset.
        metadata: The checkpoint's.
        modules: Modules outside robustdeq that build the model.
        results: Evaluations of this model.
    """
    title = (name or kind).removeprefix(PREFIX)
    name = name or "PATH-OF-THIS-FOLDER"
    dataset, eps = metadata.get("dataset"), metadata.get("eps")
    tags = ["adversarial-robustness", "deep-equilibrium-model", *([str(dataset)] if dataset else [])]
    trust = ", trust=True" if modules else ""
    lines = [
        "---",
        "library_name: robustdeq",
        "pipeline_tag: image-classification",
        f"tags: [{', '.join(tags)}]",
        "---",
        "",
        f"# {title}",
        "",
        f"A {kind} for robustdeq: `rd.load({name!r}{trust})`, or `{name}` wherever a command takes a checkpoint.",
        "",
        "## Data and threat",
        "",
        f"- Data: {dataset or 'not recorded'}; pixels in [0, 1].",
        *([f"- Classes: {', '.join(map(str, metadata['classes']))}."] if metadata.get("classes") else []),
        f"- Threat: {f'Linf, eps {eps:g} ({255 * eps:.3g}/255)' if eps else 'not recorded'}.",
        *_training(metadata),
        "",
        "## Numbers",
        "",
    ]
    if results:
        for result in results:
            lines += ["```text", result.table(), "```", ""]
    else:
        lines += ["No evaluation came with these weights.", ""]
    if (clean := metadata.get("validation_clean")) is not None:
        attacked = metadata.get("validation_pgd")
        more = "" if attacked is None else f", {attacked:.1%} under PGD-10"
        lines += [
            f"On {metadata.get('held_out', 'held-out')} validation images: {clean:.1%} clean{more}. The checkpoint was "
            "chosen by them, so they are no result.",
            "",
        ]
    lines += [
        "## How to reproduce",
        "",
        "```sh",
        f"robustdeq benchmark {name} --limit 1000{' --trust' if modules else ''}",
        "```",
        "",
        "## Limits",
        "",
        "- The numbers hold for this data, this threat and these attacks. Another attack may break more images: the "
        "union is an upper bound of the robust accuracy.",
        "- A robust accuracy belongs to the state that predicts and to the solver's settings in config.json.",
        "- A flag that is raised, or an undecided verdict, means that the numbers must not be relied on.",
        "- config.json and model.safetensors hold no code"
        + (f", but the model is built by {', '.join(modules)}, which you need and must trust." if modules else "."),
        "",
    ]
    return "\n".join(lines)


def _training(metadata: Mapping[str, Any]) -> list[str]:
    found = [f"{words} {metadata[key]}" for key, words in TRAINED.items() if metadata.get(key) is not None]
    return [f"- Training: {', '.join(found)}."] if found else []
