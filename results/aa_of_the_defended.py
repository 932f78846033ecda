"""Compares AutoAttack on a defended model with AutoAttack on the undefended one, on the images of both stores.

    python results/aa_of_the_defended.py trades trades-random

Each model is attacked by its own AutoAttack. The stores hold different numbers of images, which the report cannot pair.
"""

from __future__ import annotations

import sys
from pathlib import Path

from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.analysis.statistics import bootstrap_difference

STORES = Path(__file__).parent / "stores"
ATTACK = ["aa-strongest"]

for name in sys.argv[1:]:
    undefended, defended = (
        metrics.outcomes(Store(STORES / folder), ATTACK)[0].all(axis=1) for folder in (name, f"{name}-defended-sign")
    )
    count = len(defended)
    gain = bootstrap_difference(undefended[:count], defended)
    shares = f"{undefended[:count].mean():.1%} undefended, {defended.mean():.1%} defended"
    sys.stdout.write(f"{name}, {count} images: {shares}, {gain}\n")
