"""The first lines of a report: what its numbers answer."""

from __future__ import annotations

from robustdeq.report.page.cards import Card
from robustdeq.report.page.measures import AUTOATTACK, STRONGEST, Measure

MOST = 3
"""Models that a sentence names."""


def answers(cards: list[Card]) -> list[str]:
    """Sentences on the most robust model, on the defences, and on what no audit has seen."""
    if not cards:
        return ["No evaluation yet: these folders hold trainings only."]
    return [text for text in (*_best(cards), _defences(cards), _audits(cards)) if text]


def _best(cards: list[Card]) -> list[str]:
    known = [(card, m) for card in cards if (m := _weakest(card)) is not None]
    if not known:
        return ["No attack is finished yet."]
    card, m = known[0]
    said = f"{m.value}\N{NO-BREAK SPACE}% of the images stay right under {_named(m)} [{m.interval}]"
    if len(cards) == 1:
        return [f"{card.name}, {card.first.called}: {said}."]
    text = f"{card.name} has the highest robust accuracy of {len(cards)} models: {said}."
    rivals = [(other, n) for other, n in known[1:] if n.share and m.share and n.share.high >= m.share.low]
    if not rivals:
        return [text]
    others = _listed([f"{other.name} ({n.value}\N{NO-BREAK SPACE}%)" for other, n in rivals])
    return [text, f"Not clearly apart from it, because the intervals overlap: {others}."]


def _listed(names: list[str]) -> str:
    if len(names) > MOST:
        return f"{', '.join(names[:MOST])} and {len(names) - MOST} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _named(m: Measure) -> str:
    return "the strongest attack" if m.name == STRONGEST else m.name if m.name == AUTOATTACK else "all attacks"


def _weakest(card: Card) -> Measure | None:
    """The number that a model is ranked by."""
    found = [m for m in card.first.measures if m.name in (STRONGEST, AUTOATTACK) and m.share is not None]
    return min(found, key=lambda m: m.share.value if m.share else 1.0, default=None)


def _defences(cards: list[Card]) -> str:
    tried = [(card, row) for card in cards for row in card.rows if row.gain is not None]
    if not tried:
        return ""
    shown = [(card, row) for card, row in tried if row.gain is not None and row.gain.low > 0]
    what = "defence that was" if len(tried) == 1 else f"{len(tried)} defences that were"
    if not shown:
        if len(tried) == 1:
            return f"The {what} attacked itself shows no gain over its static base."
        return f"The {what} attacked themselves show no gain over their static base."
    names = ", ".join(f"{card.name} {100 * row.gain.value:+.1f} points" for card, row in shown if row.gain)
    return f"Of the {what} attacked {'itself' if len(tried) == 1 else 'themselves'}, a gain is shown by {names}."


def _audits(cards: list[Card]) -> str:
    seen = [(card, row.audit) for card in cards for row in card.rows if row.audit is not None]
    unseen = [card.name for card in cards if all(row.audit is None for row in card.rows)]
    if not seen:
        return "No model was audited, so nothing here excludes masked gradients."
    raised = [f"{card.name} ({', '.join(flag.name for flag in audit.raised)})" for card, audit in seen if audit.raised]
    said = f"Flags are raised for {_listed(raised)}." if raised else "No flag is raised where audits were made."
    return f"{said} Not audited: {_listed(unseen)}." if unseen else said
