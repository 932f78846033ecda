"""`robustdeq bench evaluate` says how many rows our batches have."""

import pytest

from robustdeq.cli.bench.evaluate import _rows
from robustdeq.defences import EarlyState
from robustdeq.models import create_model


@pytest.mark.parametrize(("images", "rows"), [(3, 54), (40, 80), (50, 100), (60, 60), (200, 100)])
def test_attacks_that_share_batches_count(images, rows):
    # (K_a, lambda) of one state may share: 18 attacks
    assert _rows(EarlyState(create_model("mdeq-nano"), state=8), 0.1, images) == rows
