"""`robustdeq recipes`: what is shipped."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from robustdeq.recipes import list_recipes, load_recipe


def run() -> None:
    """List the shipped training recipes, with their cost."""
    table = Table("recipe", "what it is, and its cost", box=box.SIMPLE)
    for name in list_recipes():
        table.add_row(name, load_recipe(name).description)
    Console().print(table)
    Console().print("robustdeq train --recipe NAME --out DIR [--data-root DIR]")
