"""A snapshot reads each file of a store once and gives the same rows."""

import shutil

import pytest
from polars.testing import assert_frame_equal

from robustdeq.evaluation import Store
from robustdeq.evaluation.store.store import Snapshot


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
    name, *_ = grid_verdict.store.attacks
    shutil.copytree(grid_verdict.store.folder, tmp_path / "copy")
    file = Store(tmp_path / "copy").path(name, 1)
    later = file.read_bytes()
    file.unlink()
    taken = Snapshot(tmp_path / "copy")
    before = taken.rows(name).collect().height
    file.write_bytes(later)
    assert taken.rows(name).collect().height == before
    assert Snapshot(tmp_path / "copy").rows(name).collect().height > before
