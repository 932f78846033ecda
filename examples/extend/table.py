"""A table of your own, from a store alone: what each attack does to the prediction at every state."""

import tempfile
from pathlib import Path

import polars as pl
from my_model import digits, trained

import robustdeq as rd
from robustdeq.evaluation import Store


def flips_by_state(store: Store) -> pl.DataFrame:
    """Per attack and state: the share of images whose prediction at that state the attack has changed.

    The rows of a store are one per image, scored predictor and state; see docs/store.md for every column.
    """
    changed = pl.col("prediction") != pl.col("clean_prediction")
    return (
        store.rows()
        .filter(pl.col("predictor") == "deployed")
        .group_by("attack", "state")
        .agg(flipped=changed.mean(), entropy=pl.col("entropy").mean(), images=pl.len())
        .sort("attack", "state")
        .collect()
    )


def main() -> None:
    """Evaluate a small DEQ, then read its store."""
    model = rd.EarlyState(trained(), state=8)
    with tempfile.TemporaryDirectory() as folder:
        rd.evaluate(model, digits(20), suite="quick", out=Path(folder), threat=rd.Linf(0.15))
        table = flips_by_state(Store(folder))
    print(table)
    print(table.write_csv())


if __name__ == "__main__":
    main()
