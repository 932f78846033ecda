"""The HTML files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from robustdeq.report.figures import Figure
from robustdeq.report.images import ImagePage
from robustdeq.report.missing import Missing
from robustdeq.report.page.answer import answers
from robustdeq.report.page.cards import Card, make_cards
from robustdeq.report.page.chart import charts, different_images
from robustdeq.report.page.lacking import lacking
from robustdeq.report.page.pictures import CHOICE, HOW, broken_images
from robustdeq.report.page.sheets import make_sheets
from robustdeq.report.results import Sources
from robustdeq.report.tables import Table


def pages(
    sources: Sources,
    tables: Sequence[Table],
    figures: Sequence[Figure],
    images: Sequence[ImagePage],
    missing: Sequence[Missing],
    further: dict[str, Any],
) -> dict[str, str]:
    """The text of each HTML file by its name: the index, a page per model, and pages of images."""
    environment = Environment(
        loader=PackageLoader("robustdeq.report.page"),
        autoescape=lambda name: str(name).endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    cards = make_cards(sources)
    groups, beyond = lacking(missing, cards)
    content = {
        "cards": cards,
        "answers": answers(cards),
        "charts": charts(cards),
        "different_images": different_images(cards),
        "broken": broken_images(cards),
        "choice": CHOICE,
        "how": HOW,
        "sheets": make_sheets(list(tables), cards),
        "figures": figures,
        "pages": images,
        "lacking": groups,
        "slugs": {card.name: card.slug for card in cards},
        "beyond": beyond,
        "sources": sources,
        **further,
    }
    files = {"index.html": environment.get_template("index.html").render(content)}
    for page in images:
        files[f"{page.name}.html"] = environment.get_template("images.html").render(page=page)
    for card in cards:
        files[f"model-{card.slug}.html"] = environment.get_template("model.html").render(
            card=card,
            pages=_of(card, images),
            commands=_commands(card),
            notes=_notes(card),
            figures=_drawn(card, figures),
        )
    return files


def _of(card: Card, images: Sequence[ImagePage]) -> list[ImagePage]:
    """The pages that show images of the model."""
    labels = {r.label for r in card.results}
    return [page for page in images if any(r.label in labels for r, _ in page.groups)]


def _drawn(card: Card, figures: Sequence[Figure]) -> list[Figure]:
    """The figures that show this model alone."""
    names = sorted({r.name for r in card.results})
    return [figure for figure in figures if any(figure.title.endswith(f": {name}") for name in names)]


def _commands(card: Card) -> list[tuple[str, str]]:
    deployed = [r for r in card.results if r.predictor == "deployed"]
    return [(r.label, entry.command) for r in deployed for entry in r.manifest.asked if entry.command]


def _notes(card: Card) -> list[tuple[str, str]]:
    return [(r.label, note) for r in card.results if r.predictor == "deployed" for note in r.manifest.notes]
