"""What an audit found, in words: its verdict, and its flags as sentences."""

from __future__ import annotations

import json
from dataclasses import dataclass

from robustdeq.evaluation.analysis.statistics import Difference
from robustdeq.report.results import Result
from robustdeq.report.results.complete import once

VERDICTS = {
    "masked": "masked: white-box attacks overstate its robustness",
    "broken": "broken: hardly any image is right under all attacks",
    "no-gain": "no gain over its static base is shown",
    "stands": "stands: no flag, and nothing that was tried broke it",
    "undecided": "undecided: so few images support no verdict",
}


@dataclass(frozen=True)
class Finding:
    """The audit of a store."""

    store: str
    verdict: str
    """The word."""
    sentence: str
    flags: list[str]
    """Each as a sentence."""
    raised: list[str]
    """Names of the flags that are raised."""
    gain: Difference | None
    images: int


@once
def finding(r: Result) -> Finding | None:
    """What the audit of a store found about its deployed predictor; None without an audit."""
    path = r.store.folder / "audit.json"
    if r.predictor != "deployed" or not path.is_file():
        return None
    found = json.loads(path.read_bytes())
    gain = found.get("gain")
    return Finding(
        store=r.label,
        verdict=found["verdict"],
        sentence=VERDICTS.get(found["verdict"], found["verdict"]),
        flags=[_sentence(flag) for flag in found["flags"]],
        raised=[flag["name"] for flag in found["flags"]],
        gain=None if gain is None else Difference(**gain),
        images=r.manifest.data.images,
    )


def _sentence(flag: dict[str, object]) -> str:
    return f"{flag['name']}: {flag.get('meaning', 'raised')}"
