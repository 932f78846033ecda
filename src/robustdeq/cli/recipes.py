"""`robustdeq recipes`: what is shipped."""

from __future__ import annotations


def run() -> None:
    """List the shipped training recipes, with their cost, and which of them have been trained already."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from robustdeq.models.pretrained import shipped
    from robustdeq.recipes import list_recipes, read_recipe

    table = Table("recipe", "weights", "what it is, and its cost", box=box.SIMPLE)
    trained = shipped()
    for name in list_recipes():
        table.add_row(name, "shipped" if name in trained else "", read_recipe(name)["description"])
    console = Console()
    console.print(table)
    console.print("robustdeq train --recipe NAME --out DIR [--data-root DIR]")
    if trained:
        console.print(f"Shipped weights have the recipe's name: robustdeq predict {next(iter(trained))} IMAGE")
