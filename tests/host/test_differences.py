"""The entries in which two configurations differ."""

from robustdeq.host.differences import differences


def test_differences_name_nested_entries_and_leave_out_free_ones():
    stored = {"a": {"b": 1, "c": 2}, "d": 3, "free": 4, "old": None}
    assert differences(stored, {"a": {"b": 1, "c": 4}, "free": 5}, where="the run", free=["free"]) == [
        "a.c: 2 in the run, 4 asked for",
        "d: 3 in the run, None asked for",
    ]
