"""Hints for mistyped names."""

from robustdeq.host.suggestions import did_you_mean


def test_the_closest_names_are_suggested():
    assert did_you_mean("trian", ["train", "evaluate"]) == "did you mean train?"
    assert did_you_mean("trian", ["train", "evaluate"], quoted=True) == "did you mean 'train'?"


def test_if_nothing_is_close_all_names_are_listed_or_the_given_words_used():
    assert did_you_mean("x", ["train", "evaluate"]) == "known are evaluate, train"
    assert did_you_mean("x", ["train", "evaluate"], "see --help") == "see --help"
