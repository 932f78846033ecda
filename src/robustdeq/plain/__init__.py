"""The same formulas written straightforwardly: oracle for the tests, baseline for `robustdeq bench`."""
