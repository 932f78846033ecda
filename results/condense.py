"""A copy of a store that is small enough to be kept under version control.

    python results/condense.py runs/stores/trades-seed0 results/stores/trades-seed0

The copy keeps every prediction of every image, attack, predictor and state, so that all accuracies can be computed.
It keeps entropies; under the grid, apart from its strongest attack on each predictor, only at the deployed state.
It keeps the audit's verdict. Margin and loss are null; adversarial images and times are left out.

Copies made before this line was written have entropies of three significant digits, and say so in their notes. There
2 to 5 % of the images have equal entropies clean and attacked, which Table 6 shows beside its shares.

A copy can be resumed. Before the grid is complete it keeps all entropies.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import polars as pl

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.audit.judge import FILE as AUDIT
from robustdeq.host.files import write_atomically

NOTE = "condensed: entropy under most of the grid at deployed states only; no margin, loss, images or times"


def condense(source: Store, target: Store) -> None:
    """Write the condensed copy of the source into the target."""
    manifest = source.manifest
    target.write_manifest(replace(manifest, notes=list(dict.fromkeys([*manifest.notes, NOTE]))))
    for shard in source.shards(None):
        target.write(None, shard, _lighter(source.shard_rows(None, shard), all_states=True))
    light = set(metrics.grid_attacks(source))
    if light and all(source.complete(attack) for attack in light):
        light -= {metrics.strongest(source, predictor=name).attack for name in manifest.predictors}
    else:  # no attack is known as the strongest yet
        light = set()
    for attack in source.attacks:
        for shard in source.shards(attack):
            rows = _lighter(source.shard_rows(attack, shard), all_states=attack not in light)
            target.write(attack, shard, rows)
    if (source.folder / AUDIT).exists():
        write_atomically(target.folder / AUDIT, (source.folder / AUDIT).read_bytes())


def _lighter(rows: pl.LazyFrame, *, all_states: bool) -> pl.DataFrame:
    entropy = pl.col("entropy") if all_states else pl.when("deployed").then("entropy")
    return rows.with_columns(entropy.alias("entropy"), margin=None, loss=None).collect()


if __name__ == "__main__":
    condense(Store(sys.argv[1]), Store(sys.argv[2]))
