"""Three images that were broken, for the first screen."""

from __future__ import annotations

from itertools import zip_longest

from robustdeq.report.images import Picture, worst_pictures
from robustdeq.report.page.cards import Card
from robustdeq.report.results import Result

SHOWN = 3
CHOICE = (
    "How they were chosen: one image per model in the order of the cards, then a second one, until there are three. Of "
    "the images that a model classifies correctly, the one that most of its attacks break comes first, then the lower "
    "mean margin, then the lower number; it is shown under the attack that left the lowest margin."
)
HOW = (
    "These stores keep no images. Evaluate with --keep-images (robustdeq.evaluate: keep_images=True) into a new folder "
    "to see three broken ones here."
)


def broken_images(cards: list[Card]) -> list[tuple[Card, Picture]]:
    """The first `SHOWN` images by the rule of `CHOICE`; none where no store keeps images."""
    queues = [
        [(card, p) for r in _stores(card) for p in worst_pictures(r) if p.prediction != p.label] for card in cards
    ]
    turns = (case for turn in zip_longest(*queues) for case in turn if case is not None)
    return list(turns)[:SHOWN]


def _stores(card: Card) -> list[Result]:
    return [r for r in card.results if r.predictor == "deployed"]
