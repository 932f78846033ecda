"""A copy of a store that is small enough to be kept under version control.

    python results/condense.py runs/results/trades-random results/stores/trades-random

Every prediction of every image, attack, predictor and state stays, so that all accuracies can be computed again.
Entropy stays for the deployed state, to three digits; of other states it is null, as are margin and loss everywhere.
Adversarial images and times are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

from robustdeq.evaluation import Store

NOTE = "condensed: entropy to three digits at deployed states, null at others; no margin, loss, images or times"


def condense(source: Store, target: Store) -> None:
    """Write the copy."""
    for shard in source.shards(None):
        target.write_clean(shard, _lighter(source.clean_path(shard)))
    for attack in source.attacks:
        for shard in source.shards(attack):
            target.write_attack(attack, shard, _lighter(source.attack_path(attack, shard)))
    manifest = source.manifest
    target.write_manifest({**manifest, "notes": [*manifest["notes"], NOTE]})


def _lighter(path: Path) -> pl.DataFrame:
    entropy = pl.when("deployed").then(pl.col("entropy").round_sig_figs(3))
    return pl.read_parquet(path).with_columns(entropy.alias("entropy"), margin=None, loss=None)


if __name__ == "__main__":
    condense(Store(sys.argv[1]), Store(sys.argv[2]))
