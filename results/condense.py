"""A copy of a store that is small enough to be kept under version control.

    python results/condense.py runs/results/trades-random results/stores/trades-random

Every prediction of every image, attack, predictor and state stays, so that all accuracies can be computed again.
Entropy stays, to three digits; under the grid, apart from its strongest attack on each predictor, only that of the
deployed state. An audit's verdict stays. Margin and loss are null, adversarial images and times left out.

The copy, copied back, can be evaluated further. While the grid is incomplete no attack of it is the strongest, and what
a copy lacks then stays lacking.
"""

from __future__ import annotations

import sys

import polars as pl

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.audit.judge import FILE as AUDIT
from robustdeq.host.files import write_atomically

NOTE = (
    "condensed: entropy to three digits, under most of the grid at deployed states only; "
    "no margin, loss, images or times"
)


def condense(source: Store, target: Store) -> None:
    """Write the copy."""
    for shard in source.shards(None):
        target.write_clean(shard, _lighter(source.shard_rows(None, shard), all_states=True))
    manifest = source.manifest
    light = set(metrics.grid_attacks(source))
    if light and all(source.complete(attack) for attack in light):
        light -= {metrics.strongest(source, predictor=name).attack for name in manifest["predictors"]}
    for attack in source.attacks:
        for shard in source.shards(attack):
            rows = _lighter(source.shard_rows(attack, shard), all_states=attack not in light)
            target.write_attack(attack, shard, rows)
    if (source.folder / AUDIT).exists():
        write_atomically(target.folder / AUDIT, (source.folder / AUDIT).read_bytes())
    target.write_manifest({**manifest, "notes": list(dict.fromkeys([*manifest["notes"], NOTE]))})


def _lighter(rows: pl.LazyFrame, *, all_states: bool) -> pl.DataFrame:
    rounded = pl.col("entropy").round_sig_figs(3)
    entropy = rounded if all_states else pl.when("deployed").then(rounded)
    return rows.with_columns(entropy.alias("entropy"), margin=None, loss=None).collect()


if __name__ == "__main__":
    condense(Store(sys.argv[1]), Store(sys.argv[2]))
