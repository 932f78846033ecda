"""Compares AutoAttack on a defended model with AutoAttack on the undefended one, on the images of both stores.

    python results/aa_of_the_defended.py results/frozen/stores/trades results/frozen/stores/trades-defended-sign

Each model is attacked by its own AutoAttack. The stores may hold different numbers of images, which the report cannot
pair.
"""

from __future__ import annotations

import sys

from answers import right, share

from robustdeq.evaluation import Store
from robustdeq.evaluation.analysis.statistics import bootstrap_difference

undefended, defended = (right(Store(path), "AutoAttack") for path in sys.argv[1:3])
if undefended is None or defended is None:
    sys.exit("one of the stores has no AutoAttack")
count = min(len(undefended), len(defended))
gain = bootstrap_difference(undefended[:count], defended[:count])
sys.stdout.write(f"{share(undefended[:count])} undefended, {share(defended[:count])} defended: {gain}\n")
