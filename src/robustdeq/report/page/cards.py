"""One card per model: its numbers, its defences beside it, what audits found, and the next command."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

from robustdeq.evaluation.analysis.statistics import Difference
from robustdeq.evaluation.audit.flags import about
from robustdeq.evaluation.audit.judge import Audit, read_audit
from robustdeq.report.figures.drawing import distinct, slug
from robustdeq.report.missing.commands import evaluate_again, folder, resume
from robustdeq.report.page.measures import AUTOATTACK, LARGE, OTHER, STRONGEST, Measure, measured, paired_gain
from robustdeq.report.results import Result, Sources
from robustdeq.report.results.complete import finished, has_whole_grid, once
from robustdeq.report.tables.numbers import strongest_autoattack


@dataclass(frozen=True)
class Row:
    """A predictor of a card with its numbers."""

    result: Result
    called: str
    measures: list[Measure]
    """Those of `LARGE`."""
    audit: Audit | None = None
    gain: Difference | None = None
    """Union accuracy minus that of its static base on the same images; None without a base."""
    verdict: str = ""
    """What the gain means, in words."""
    base: list[Measure] = field(default_factory=list)
    """The numbers of its static base on the same images; empty where these are the card's first row."""

    @property
    def words(self) -> str:
        """What the gain means, and the audit's verdict with its reason unless that is the gain."""
        found = [self.verdict] if self.verdict else []
        if self.audit is not None:
            found.append(f"audit: {self.audit.verdict}{_because(self.audit, bool(found))}")
        return " ".join(f"{text[0].upper()}{text[1:]}." for text in found)

    @property
    def tone(self) -> str:
        """Whether that is good or bad; empty if neither."""
        verdict = None if self.audit is None else self.audit.verdict
        if verdict in ("masked", "broken") or (self.gain is not None and self.gain.high < 0):
            return "bad"
        shown = self.gain is not None and self.gain.low > 0 and not self.result.oblivious
        return "yes" if verdict == "stands" or (verdict is None and shown) else ""


@dataclass(frozen=True)
class Card:
    """A model under a threat on a data set, with every defence that was put around it."""

    name: str
    slug: str
    what: str
    facts: list[str]
    """Data and images, threat, date, commit."""
    rows: list[Row]
    """The model itself, if it was evaluated, and defences that were attacked themselves."""
    shown: list[Row]
    """Defences that only saw images made against the model."""
    results: list[Result]
    """Everything in the report about this model."""
    next: tuple[str, str] | None
    """Why, and the command."""

    def label(self, measure: Measure) -> str:
        """What its column is called: the strongest attack is the strongest but AutoAttack where that was run."""
        shown = [m.name for row in self.rows or self.shown for m in row.measures if m.share is not None]
        return OTHER if measure.name == STRONGEST and AUTOATTACK in shown else measure.name

    @property
    def first(self) -> Row:
        """The row that the model is ranked by: the deployed predictor without defence, else with one."""
        rows = self.rows or self.shown
        return next((row for row in rows if row.result.predictor == "deployed"), rows[0])


def _because(audit: Audit, gained: bool) -> str:
    if gained and audit.verdict == "no-gain":
        return ""
    if gained and audit.verdict == "undecided" and audit.decides is not None:
        return f", about {about(audit.decides):,} images would decide"
    return f", {audit.reason}"


@once
def audit_of(r: Result) -> Audit | None:
    """The audit of a deployed predictor, judged by today's rules; None if it was not audited."""
    return read_audit(r.store) if r.predictor == "deployed" else None


def make_cards(sources: Sources) -> list[Card]:
    """All models, the most robust first: those with AutoAttack by the lower of it and the strongest attack."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for r in sources.results:
        groups[repr((_weights(r), r.manifest.threat, r.manifest.data.name, r.manifest.data.split))].append(r)
    cards = [_card(results) for results in groups.values()]
    cards.sort(key=lambda card: (*_rank(card.first), card.name))
    slugs = distinct(card.slug for card in cards)
    return [replace(card, slug=slug) for card, slug in zip(cards, slugs, strict=True)]


def base_of(r: Result) -> str | None:
    """The predictor of the same store that is this one without its defence; None for a model without defence."""
    if r.predictor == "deployed":
        return "base" if "base" in r.manifest.predictors else None
    return None if r.predictor == "base" else "deployed"


def _weights(r: Result) -> str:
    """Equal for a model and all defences around it."""
    return r.manifest.predictors[base_of(r) or r.predictor].weights_sha256 or r.label


def _content(r: Result) -> tuple[bool, bool, int, int, str]:
    """How much a result has to show."""
    own = r.predictor == "deployed"
    return (
        own and has_whole_grid(r),
        strongest_autoattack(r) is not None,
        r.manifest.data.images,
        len(finished(r)),
        r.label,
    )


def _card(results: list[Result]) -> Card:
    plain, attacked, shown = (
        [r for r in results if base_of(r) is None],
        [r for r in results if r.predictor == "deployed" and base_of(r) is not None],
        [r for r in results if base_of(r) == "deployed"],
    )
    main = max(plain or attacked or shown, key=_content)
    defences = _richest(attacked)
    known = {_defence(r) for r in defences}
    beside = [r for r in _richest(shown) if _defence(r) not in known]
    rows = [_row(r, results, main) for r in ([main] if plain else []) + defences]
    return Card(
        name=main.label,
        slug=slug(main.label),
        what=_what(main),
        facts=_facts(main),
        rows=rows,
        shown=[_row(r, results, main) for r in beside],
        results=results,
        next=_next(main, results),
    )


def _richest(results: list[Result]) -> list[Result]:
    """Of each defence the result with most to show, and an audit before anything else."""
    best: dict[str, Result] = {}
    for r in results:
        key = _defence(r)
        if key not in best or (audit_of(r) is not None, _content(r)) > (
            audit_of(best[key]) is not None,
            _content(best[key]),
        ):
            best[key] = r
    return sorted(best.values(), key=lambda r: (_content(r), r.label), reverse=True)


def _defence(r: Result) -> str:
    return repr((r.entropy, None if r.entropy else list(r.record.layers), r.record.deployed_state))


def _row(r: Result, results: list[Result], main: Result) -> Row:
    base, found = base_of(r), audit_of(r)
    if base is None:
        audited = [other for other in results if base_of(other) is None and audit_of(other) is not None]
        found = found or (audit_of(audited[0]) if audited else None)
        called = "undefended" if r.predictor == "deployed" else "static base under the same attacks"
        return Row(r, called, _large(r), found)
    gain = found.gain if found is not None else paired_gain(r, base)
    words = "" if gain is None else in_words(gain, oblivious=r.oblivious)
    static = [] if main.store is r.store else _large(Result(r.label, r.store, base))
    return Row(r, _called(r), _large(r), found, gain, words, static)


def _large(r: Result) -> list[Measure]:
    return [measured(r)[name] for name in LARGE]


def in_words(gain: Difference, *, oblivious: bool = False) -> str:
    """What a gain over the static base means: shown, not shown, or a loss."""
    points, images = (
        f"{100 * gain.value:+.1f} points [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]",
        f"{gain.images:,} images",
    )
    if gain.low > 0 and oblivious:
        return (
            f"{points}, but on images that were made against the undefended model: attacks on the defence may undo it"
        )
    if gain.low > 0:
        return f"gain shown: {points} on {images}"
    if gain.high < 0:
        return f"loss shown: {points} on {images}"
    return f"no gain shown: {points}; these {images} can detect {100 * (gain.value - gain.low):.1f} points"


def _called(r: Result) -> str:
    """The defence in words."""
    if r.entropy is None:
        kinds = [kind for kind in r.record.layers if kind != "EarlyState"]
        return f"behind {kinds[0]}" if len(kinds) > 1 else "defended"
    settings = f"T_f {r.entropy.every}, R {r.entropy.steps}"
    return f"behind entropy reduction (Sec. 3.2, {r.entropy.words}; {settings})"


def _what(r: Result) -> str:
    """Which model it is, how it was trained, what it predicts from."""
    manifest = r.manifest
    words = manifest.model.kind
    if r.training != "unknown":
        words += f", {'trained without attacks' if r.training == 'standard' else f'trained by {r.training}'}"
    if r.random:
        words += " with random states (Sec. 3.3)"
    if not manifest.dynamic:
        return words
    state = r.record.deployed_state
    return f"{words}; predicts from {'the final state' if state == 'final' else f'z^[{state}]'}"


def _facts(r: Result) -> list[str]:
    manifest = r.manifest
    data, threat = manifest.data, manifest.threat
    first = "first " if data.limit is not None and data.name != "tensors" else ""
    facts = [f"{data.name} {data.split}, {first}{data.images:,} images"]
    facts.append(f"{'L∞' if type(threat).__name__ == 'Linf' else type(threat).__name__} {r.eps}")
    if manifest.runs:
        last = max(manifest.runs, key=lambda run: run.started)
        facts.append(last.started[:10])
        facts += [f"commit {last.commit}"] if last.commit else []
    return facts


def _next(main: Result, results: list[Result]) -> tuple[str, str] | None:
    """The one command that would add most: resume, then AutoAttack, then an audit, then the images that decide."""
    deployed = [r for r in results if r.predictor == "deployed"]
    for r in sorted(deployed, key=lambda r: (r is not main, r.label)):
        if not r.store.complete(None) or not all(map(r.store.complete, r.store.attacks)):
            return f"{r.label} is not finished", resume(r)[0]
    own = main if main.predictor == "deployed" else next((r for r in deployed if r.store is main.store), main)
    if all(strongest_autoattack(r) is None for r in deployed):
        return "AutoAttack was not run", _again(own, "autoattack")
    if all(audit_of(r) is None for r in deployed):
        return "nobody looked for masked gradients yet: audit it", _again(own, "audit")
    return next((found for r in deployed if (found := _deciding(r)) is not None), None)


def _deciding(r: Result) -> tuple[str, str] | None:
    """More images for an undecided audit, if that many would decide it and the command says how many it has."""
    audit = audit_of(r)
    if audit is None or audit.verdict != "undecided" or audit.decides is None:
        return None
    command, images = evaluate_again(r, "audit", folder(r, "-more")), about(audit.decides)
    more, given = re.subn(r"--limit[= ]\d+", f"--limit {images}", command)
    return (f"about {images:,} images would decide the audit of {r.label}", more) if given else None


def _again(r: Result, suite: str) -> str:
    # a store only takes suites that score the same predictors
    alone = set(r.manifest.predictors) <= {"deployed", "base"}
    return evaluate_again(r, suite, folder(r, "" if alone else f"-{suite}"))


def _rank(row: Row) -> tuple[bool, float]:
    """Models without AutoAttack come last: what a weaker attack leaves cannot be compared."""
    found = {m.name: m.share.value for m in row.measures if m.name in (STRONGEST, AUTOATTACK) and m.share}
    return AUTOATTACK not in found, -min(found.values(), default=-1.0)
