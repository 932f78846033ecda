"""A snapshot reads each file of a store once and gives the same rows."""

import pytest
from polars.testing import assert_frame_equal

from robustdeq.evaluation import Store
from robustdeq.evaluation.store.store import Snapshot
from tests.evaluation.manifests import manifest, record


@pytest.mark.parametrize("room", [0, 3000, 2**30])
def test_a_snapshot_gives_the_rows_of_its_store_whatever_its_memory_limit(grid_verdict, room):
    store = grid_verdict.store
    taken = Snapshot(store.folder, room=room)
    names = store.attacks
    for _ in range(2):
        assert_frame_equal(taken.clean().collect(), store.clean().collect())
        assert_frame_equal(taken.rows(names[::-3]).collect(), store.rows(names[::-3]).collect())
        assert_frame_equal(taken.rows().collect(), store.rows().collect())
        assert [taken.shards(name) for name in (None, *names)] == [[0, 1]] * (len(names) + 1)


def test_a_snapshot_does_not_see_what_is_written_later(grid_verdict, tmp_path):
    store = grid_verdict.store
    (tmp_path / "attacks" / "a").mkdir(parents=True)
    Store(tmp_path).write_manifest(manifest([record("a")]))
    taken = Snapshot(tmp_path)
    assert taken.rows("a").collect().is_empty()
    (tmp_path / "attacks" / "a" / "shard-0000.parquet").write_bytes(store.path(store.attacks[0], 0).read_bytes())
    assert taken.rows("a").collect().is_empty()
    assert not Snapshot(tmp_path).rows("a").collect().is_empty()
